//! The database of control. Only this module and its children use SQL.
//!
//! - [`projects`], [`limits`], [`api_keys`], [`browsers`], [`replays`], [`purge_clock`]: the
//!   queries on each table.
//! - [`search`]: conditions that search for a text.
//! - [`entity`]: the tables as sea-orm entities.
//! - [`migration`]: the history of the schema.
//! - [`constraints`]: which unique constraint a database error is about.
//!
//! All statements go through the query builder and avoid dialects, so that they work on SQLite,
//! the embedded default, and on PostgreSQL. State machines live outside: an update names the state
//! it expects, and the number of changed rows shows whether the row was in that state.

use std::{path::Path, time::Duration};

use chrono::{DateTime, TimeZone, Utc};
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, DbErr, EntityTrait,
};
use sea_orm_migration::MigratorTrait;

mod api_keys;
mod browsers;
mod constraints;
#[expect(
    unreachable_pub,
    reason = "the derives of sea-orm generate and require public items"
)]
mod entity;
mod limits;
mod migration;
mod projects;
mod purge_clock;
mod replays;
mod search;

pub use api_keys::{
    ApiKeyRecord, ApiKeyRow, Authorized, CallerKey, KeyCreator, KeyListing, KeyOrder,
    KeyStatusFilter, NewApiKey,
};
pub use browsers::{
    BrowserRow, Change, CreateBrowserError, Creation, Listing, NewBrowserRow, StateFilter,
};
pub use constraints::UniqueConstraint;
pub use limits::{OrganizationRow, ProjectLimitsRow};
pub use projects::{ProjectChange, ProjectListing, ProjectOutcome, ProjectRow};
pub use purge_clock::PurgeClock;
pub use replays::{ReplayEnd, ReplayRow};

/// The longest wait of a statement for a write of another process to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections to the database. Readers run in parallel in WAL mode; SQLite serializes
/// writers in any case.
const MAX_CONNECTIONS: u32 = 8;

/// A handle to the database. Clones share its connections.
#[derive(Clone)]
pub struct Store {
    db: DatabaseConnection,
}

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("unique constraint violated: {0:?}")]
    UniqueViolation(UniqueConstraint),
    /// A row contains a value that this program never writes.
    #[error("invalid {field} in the database: {value:?}")]
    Corrupt { field: &'static str, value: String },
    /// A write found no room. Everything else may still work.
    #[error("the disk of the database is full: {0}")]
    DiskFull(String),
    #[error("database: {0}")]
    Database(DbErr),
}

/// SQLite's code of a write for which there is no room, SQLITE_FULL.
const SQLITE_FULL: &str = "13";
/// PostgreSQL's code of the same, disk_full.
const POSTGRES_DISK_FULL: &str = "53100";

fn is_disk_full(error: &DbErr) -> bool {
    let code = constraints::database_error(error).and_then(|error| error.code());
    code.is_some_and(|code| code == SQLITE_FULL || code == POSTGRES_DISK_FULL)
}

impl From<DbErr> for StoreError {
    fn from(error: DbErr) -> Self {
        match constraints::violated_constraint(&error) {
            Some(constraint) => StoreError::UniqueViolation(constraint),
            None if is_disk_full(&error) => StoreError::DiskFull(error.to_string()),
            None => StoreError::Database(error),
        }
    }
}

impl Store {
    /// Opens the SQLite file at `path`, creates it if it is missing, and migrates its schema.
    ///
    /// The caller must hold the state directory's store lock, because two processes must not
    /// migrate at once.
    pub async fn open_sqlite(path: &Path) -> Result<Store, StoreError> {
        use sea_orm::sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};

        let file = path.to_owned();
        let mut options = ConnectOptions::new("sqlite:");
        options
            .max_connections(MAX_CONNECTIONS)
            .sqlx_logging(false)
            .map_sqlx_sqlite_opts(move |sqlite| {
                sqlite
                    .filename(&file)
                    .create_if_missing(true)
                    .foreign_keys(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // In WAL mode this survives a crash of the process. Only a power failure can
                    // lose the last writes, and no local browser survives one either.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(BUSY_TIMEOUT)
            });
        let db = Database::connect(options).await?;
        migration::Migrator::up(&db, None).await?;
        let store = Store { db };
        store.checkpoint().await;
        Ok(store)
    }

    /// Returns whether there are no keys, browsers and replays, as in a new database.
    pub async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(entity::api_key::Entity::find()
            .one(&self.db)
            .await?
            .is_none()
            && entity::browser::Entity::find()
                .one(&self.db)
                .await?
                .is_none()
            && entity::replay::Entity::find()
                .one(&self.db)
                .await?
                .is_none())
    }

    /// Syncs SQLite's log to the disk and copies it into the database, so that neither a power
    /// failure nor damage to the log undoes what was written before. A failure is only logged: the
    /// log still has everything.
    async fn checkpoint(&self) {
        if self.db.get_database_backend() != DbBackend::Sqlite {
            return;
        }
        // Waits for no other connection.
        if let Err(error) = self
            .db
            .execute_unprepared("PRAGMA wal_checkpoint(PASSIVE)")
            .await
        {
            tracing::warn!(%error, "cannot copy the log into the database");
        }
    }

    /// Checks that the database responds.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.db.ping().await?)
    }

    /// Finishes running statements and writes the log back into the file.
    pub async fn close(self) -> Result<(), StoreError> {
        Ok(self.db.close().await?)
    }
}

fn to_millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_millis()
}

fn from_millis(millis: i64) -> Result<DateTime<Utc>, StoreError> {
    Utc.timestamp_millis_opt(millis)
        .single()
        .ok_or_else(|| corrupt("time", millis))
}

fn corrupt(field: &'static str, value: impl ToString) -> StoreError {
    StoreError::Corrupt {
        field,
        value: value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn write_without_room_is_disk_full() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let store = Store::open_sqlite(&path).await.unwrap();
        store.default_project("default", Utc::now()).await.unwrap();
        store.close().await.unwrap();
        // The limit is that of a connection.
        let mut options = ConnectOptions::new(format!("sqlite:{}", path.display()));
        options.max_connections(1);
        let db = Database::connect(options).await.unwrap();
        let store = Store { db };
        // SQLite takes this for the present number of pages.
        let limit = "PRAGMA max_page_count = 1";
        store.db.execute_unprepared(limit).await.unwrap();
        let key = |number: usize| NewApiKey {
            name: "n".repeat(4096),
            public_part: format!("{number:012x}"),
            digest: [0; 32],
            project_id: None,
            expires_at: None,
            created_by: None,
        };
        let mut error = None;
        for number in 0..100 {
            error = store.create_api_key(key(number), Utc::now()).await.err();
            if error.is_some() {
                break;
            }
        }
        assert!(matches!(error, Some(StoreError::DiskFull(_))), "{error:?}");
    }
}
