//! Control's truth. This module and its children are the only place that speaks SQL.
//!
//! Everything goes through the query builder and holds on every database it knows: SQLite is the embedded default.

use std::{path::Path, time::Duration};

use chrono::{DateTime, TimeZone, Utc};
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr, SqlErr};
use sea_orm_migration::MigratorTrait;

mod api_keys;
mod browsers;
mod entity;
mod migration;
mod projects;
mod replays;

pub use api_keys::{ApiKeyRow, NewApiKey};
pub use browsers::{BrowserRow, Change, Creation, Listing, NewBrowserRow, StateFilter};
pub use projects::ProjectRow;
pub use replays::{ReplayEnd, ReplayRow};

/// How long a statement waits for another process's write to the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Readers run side by side in WAL mode; writers take turns in any case.
const MAX_CONNECTIONS: u32 = 8;

/// A handle on the database; clones share its connections.
#[derive(Clone)]
pub struct Store {
    db: DatabaseConnection,
}

/// What can go wrong when the database is asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A name that has to be unique is taken.
    #[error("a unique value is taken already")]
    Taken,
    /// A request with this idempotency key has a record already.
    #[error("the idempotency key is taken already")]
    KeyTaken,
    /// A row holds what this program never writes.
    #[error("the database holds a bad {what}: {value:?}")]
    Corrupt { what: &'static str, value: String },
    #[error("database: {0}")]
    Database(DbErr),
}

impl From<DbErr> for StoreError {
    fn from(error: DbErr) -> Self {
        match error.sql_err() {
            // SQLite names the columns, others the index; both have this in their name.
            Some(SqlErr::UniqueConstraintViolation(what)) if what.contains("idempotency_key") => {
                StoreError::KeyTaken
            }
            Some(SqlErr::UniqueConstraintViolation(_)) => StoreError::Taken,
            _ => StoreError::Database(error),
        }
    }
}

impl Store {
    /// Opens the SQLite file at `path`, makes it where it is missing and brings its schema up to date.
    ///
    /// Two processes must not do this at once: the principal holds the state directory's store lock.
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
                    // With a write-ahead log this survives a crash of the process; only a power cut may lose the last
                    // writes, and after one no local browser is left to know about.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(BUSY_TIMEOUT)
            });
        let db = Database::connect(options).await?;
        migration::Migrator::up(&db, None).await?;
        Ok(Store { db })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.db.ping().await?)
    }

    /// Finishes what is running and writes the log back into the file.
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

fn corrupt(what: &'static str, value: impl ToString) -> StoreError {
    StoreError::Corrupt {
        what,
        value: value.to_string(),
    }
}
