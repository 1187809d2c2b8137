//! Opens a SQLite database.

use std::{path::Path, time::Duration};

use futures::FutureExt;
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, DbErr};
use sqlx::{
    Connection,
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};

use super::open_error::OpenFailure;

/// The longest wait of a statement for a write of another process to the same file, and for a
/// connection.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

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
    // Waits for no other connection.
    let copied = db.execute_unprepared("PRAGMA wal_checkpoint(PASSIVE)");
    if let Err(error) = copied.await {
        tracing::warn!(%error, "cannot copy the log into the database");
    }
}
