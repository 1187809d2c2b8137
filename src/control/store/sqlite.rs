//! Opens a SQLite database.

use std::{path::Path, time::Duration};

use futures::FutureExt;
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, DbErr, Statement,
};
use sqlx::{
    Connection,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};
use tokio::time::{sleep, timeout};

use super::open_error::OpenFailure;

/// The longest wait of a statement for a write of another process to the same file, and for a
/// connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait until other connections read no part of the log that is to be copied.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between attempts to copy the log.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(5);

/// The most connections that read. In WAL mode they run in parallel, also beside the writer.
const MAX_READERS: u32 = 8;

/// Opens the file at `path` for statements that write, and creates it if it is missing.
///
/// Writers wait for this single connection in order. With several, SQLite lets each poll for its
/// lock at growing intervals.
pub(super) async fn open_writer(path: &Path) -> Result<DatabaseConnection, DbErr> {
    connect(path, 1, |sqlite| writable(sqlite).create_if_missing(true)).await
}

/// Opens the file at `path`, which exists, for statements that read.
pub(super) async fn open_readers(path: &Path) -> Result<DatabaseConnection, DbErr> {
    // They still take part in the recovery of the log, unlike connections to a read-only file.
    let configure = |sqlite: SqliteConnectOptions| writable(sqlite).pragma("query_only", "ON");
    connect(path, MAX_READERS, configure).await
}

/// Opens the file at `path` without changing it. Fails if there is none.
pub(super) async fn open_read_only(path: &Path) -> Result<DatabaseConnection, OpenFailure> {
    if !path.is_file() {
        return Err(OpenFailure::NoFile);
    }
    Ok(connect(path, MAX_READERS, |sqlite| sqlite.read_only(true)).await?)
}

fn writable(sqlite: SqliteConnectOptions) -> SqliteConnectOptions {
    sqlite
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        // In WAL mode this survives a crash of the process. Only a power failure can lose the last
        // writes, and no local browser survives one either.
        .synchronous(SqliteSynchronous::Normal)
}

async fn connect(
    path: &Path,
    connections: u32,
    configure: fn(SqliteConnectOptions) -> SqliteConnectOptions,
) -> Result<DatabaseConnection, DbErr> {
    let file = path.to_owned();
    let mut options = ConnectOptions::new("sqlite:");
    options
        .max_connections(connections)
        .acquire_timeout(BUSY_TIMEOUT)
        .sqlx_logging(false)
        .map_sqlx_sqlite_opts(move |sqlite| {
            configure(sqlite.filename(&file).busy_timeout(BUSY_TIMEOUT))
        })
        .map_sqlx_sqlite_before_acquire(|connection, _| is_reusable(connection).boxed());
    Database::connect(options).await
}

/// Returns whether a connection can be used again. One whose commit failed on a full disk is still
/// in its transaction for sqlx, which would make transactions of later statements a part of that.
async fn is_reusable(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    Ok(!connection.is_in_transaction())
}

/// Syncs SQLite's log to the disk and copies it into the database, so that neither a power failure
/// nor damage to the log undoes what was written before. A failure is only logged: the log still
/// has everything. Does nothing for another database.
pub(super) async fn checkpoint(db: &DatabaseConnection) {
    if db.get_database_backend() != DbBackend::Sqlite {
        return;
    }
    match timeout(CHECKPOINT_TIMEOUT, copy_log(db)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot copy the log into the database"),
        Err(_) => tracing::warn!("the log is not copied into the database: it is still read"),
    }
}

async fn copy_log(db: &DatabaseConnection) -> Result<(), DbErr> {
    let mut copying = LogCopying::default();
    while !copying.attempt(db).await? {
        sleep(CHECKPOINT_INTERVAL).await;
    }
    Ok(())
}

/// The copying of all that is in the log at the first attempt. An attempt leaves out what another
/// connection may not see yet, and does nothing beside another checkpoint.
#[derive(Default)]
struct LogCopying {
    /// The number of pages in the log at the first attempt.
    required: Option<i32>,
}

impl LogCopying {
    /// Copies what can be copied, and returns whether nothing is left.
    async fn attempt(&mut self, db: &DatabaseConnection) -> Result<bool, DbErr> {
        // Waits for no other connection, unlike the other modes, which also keep writers waiting.
        let pragma = Statement::from_string(DbBackend::Sqlite, "PRAGMA wal_checkpoint(PASSIVE)");
        let row = db.query_one_raw(pragma).await?;
        let row = row.ok_or_else(|| DbErr::RecordNotFound("the state of the log".to_owned()))?;
        let is_busy = row.try_get_by_index::<i32>(0)? != 0;
        let length = row.try_get_by_index::<i32>(1)?;
        let copied = row.try_get_by_index::<i32>(2)?;
        let required = *self.required.get_or_insert(length);
        // SQLite starts a new log only after it has copied all of the one before.
        let is_new_log = length < required;
        Ok(!is_busy && (copied >= required || is_new_log))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use chrono::Utc;
    use sea_orm::TransactionTrait;
    use tempfile::tempdir;

    use super::{super::Store, *};

    #[tokio::test]
    async fn log_is_copied_after_the_end_of_an_older_reader() {
        let directory = tempdir().unwrap();
        let file = directory.path().join("db");
        let store = Store::open_sqlite(&file).await.unwrap();
        let reader = store.db.begin().await.unwrap();
        let query = Statement::from_string(DbBackend::Sqlite, "SELECT id FROM projects");
        assert!(reader.query_all_raw(query).await.unwrap().is_empty());
        store.create_project("p", Utc::now()).await.unwrap();

        let mut copying = LogCopying::default();
        assert!(!copying.attempt(&store.db).await.unwrap());
        reader.rollback().await.unwrap();
        assert!(copying.attempt(&store.db).await.unwrap());

        // Without its log.
        let copy = directory.path().join("copy");
        fs::copy(&file, &copy).unwrap();
        let copy = Store::open_sqlite(&copy).await.unwrap();
        assert!(copy.find_project_named("p").await.unwrap().is_some());
        store.close().await.unwrap();
        copy.close().await.unwrap();
    }
}
