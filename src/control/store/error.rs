//! Why a database operation failed.

use sea_orm::{DbErr, RuntimeErr};

use super::constraints::{UniqueConstraint, database_error, violated_constraint};

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("unique constraint violated: {0:?}")]
    UniqueViolation(UniqueConstraint),
    /// A row contains a value that this program never writes.
    #[error("invalid {field} in the database: {value:?}")]
    Corrupt { field: &'static str, value: String },
    /// A text has a character that the database does not store: NUL in PostgreSQL.
    #[error("a text cannot be stored: {0}")]
    InvalidText(String),
    /// A write found no room. Everything else may still work.
    #[error("the disk of the database is full: {0}")]
    DiskFull(String),
    /// The database cannot be reached, is overloaded, or has cancelled the operation. Nothing was
    /// changed, unless the connection broke during a commit.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    #[error("database: {0}")]
    Database(DbErr),
}

/// SQLite's code of a write for which there is no room, SQLITE_FULL.
const SQLITE_FULL: &str = "13";
/// SQLite's code of a wait for another process that took too long, SQLITE_BUSY.
const SQLITE_BUSY: &str = "5";
/// PostgreSQL's code of a write for which there is no room, disk_full.
const POSTGRES_DISK_FULL: &str = "53100";
/// PostgreSQL's code of a text that it does not store, character_not_in_repertoire.
const POSTGRES_INVALID_TEXT: &str = "22021";

/// PostgreSQL's codes of operations that may succeed later, or the first two characters of a class
/// of them.
const POSTGRES_UNAVAILABLE: [&str; 11] = [
    "08",    // connection exceptions
    "25006", // read_only_sql_transaction: the server has become a standby
    "25P03", // idle_in_transaction_session_timeout
    "40",    // deadlocks and serialization failures
    "53",    // insufficient resources
    "55P03", // lock_not_available: a lock timeout
    "57014", // query_canceled: a statement timeout
    "57P01", // admin_shutdown
    "57P02", // crash_shutdown
    "57P03", // cannot_connect_now
    "57P05", // idle_session_timeout
];

impl From<DbErr> for StoreError {
    fn from(error: DbErr) -> Self {
        if let Some(constraint) = violated_constraint(&error) {
            return StoreError::UniqueViolation(constraint);
        }
        let code = database_error(&error).and_then(|error| error.code());
        match code.as_deref() {
            Some(SQLITE_FULL | POSTGRES_DISK_FULL) => StoreError::DiskFull(error.to_string()),
            Some(POSTGRES_INVALID_TEXT) => StoreError::InvalidText(error.to_string()),
            Some(code) if is_unavailable(code) => StoreError::Unavailable(error.to_string()),
            None if is_connection_error(&error) => StoreError::Unavailable(error.to_string()),
            _ => StoreError::Database(error),
        }
    }
}

fn is_unavailable(code: &str) -> bool {
    let is_postgres = code.len() == 5;
    let mut unavailable = POSTGRES_UNAVAILABLE.iter();
    code == SQLITE_BUSY || is_postgres && unavailable.any(|start| code.starts_with(start))
}

/// Returns whether there is no connection to the database, or it broke.
fn is_connection_error(error: &DbErr) -> bool {
    let (DbErr::Conn(RuntimeErr::SqlxError(error))
    | DbErr::Exec(RuntimeErr::SqlxError(error))
    | DbErr::Query(RuntimeErr::SqlxError(error))) = error
    else {
        return matches!(error, DbErr::ConnectionAcquire(_));
    };
    matches!(
        **error,
        sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
    )
}
