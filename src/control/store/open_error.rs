//! Why a database cannot be opened.

use std::io;

use sea_orm::DbErr;

use super::{StoreError, postgres::PostgresConfig};

/// Why a database cannot be opened. The message names the database, but no password.
#[derive(Debug, thiserror::Error)]
#[error("{database}: {failure}")]
pub struct OpenError {
    pub database: String,
    pub failure: OpenFailure,
}

/// The reason that a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailure {
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("cannot connect: no response within {0} s")]
    Timeout(u64),
    #[error("cannot connect with TLS: {0}")]
    Tls(String),
    #[error("the server rejects the user or the password: {0}")]
    Unauthorized(String),
    #[error("does not exist; create it: CREATE DATABASE {name} OWNER {owner} ENCODING 'UTF8'")]
    Missing { name: String, owner: String },
    #[error("the server has version {found}; the oldest supported version is {minimum}")]
    TooOld { found: String, minimum: u32 },
    #[error("has the encoding {0}; it must have UTF8")]
    Encoding(String),
    #[error("is read-only; connect to the primary server")]
    ReadOnly,
    #[error("there is no such file")]
    NoFile,
    #[error("migrations are pending: run berth database migrate")]
    Outdated,
    #[error(
        "has the migration {0}, which this program does not know; run the newer program that applied it, or restore a backup from before that"
    )]
    Newer(String),
    #[error("another control process{0} uses it; stop that one first")]
    InUse(String),
    #[error(
        "its browsers and replays belong to the state directory {0}; select that one, or a copy of it, with --state-dir"
    )]
    OtherStateDir(String),
    #[error(
        "the control process at {0} uses it with other settings; all need the same session secret, fleet authority and blob store"
    )]
    OtherSettings(String),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for OpenFailure {
    fn from(error: StoreError) -> Self {
        OpenFailure::Store(error)
    }
}

impl OpenFailure {
    /// Adds the name of the database.
    pub(super) fn of(self, database: impl ToString) -> OpenError {
        OpenError {
            database: database.to_string(),
            failure: self,
        }
    }

    /// Returns the reason that a connection was not established.
    pub(super) fn of_connecting(error: sqlx::Error, config: &PostgresConfig) -> OpenFailure {
        let code = match &error {
            sqlx::Error::Database(error) => error.code(),
            // How an error of TLS is reported, which the client has found in what it received.
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                return OpenFailure::Tls(error.to_string());
            }
            sqlx::Error::Io(error) => return OpenFailure::Unreachable(error.to_string()),
            sqlx::Error::Tls(error) => return OpenFailure::Tls(error.to_string()),
            _ => None,
        };
        match code.as_deref() {
            Some(INVALID_PASSWORD | INVALID_AUTHORIZATION) => {
                OpenFailure::Unauthorized(message(&error))
            }
            Some(INVALID_CATALOG_NAME) => OpenFailure::Missing {
                name: config.database().to_owned(),
                owner: config.user().to_owned(),
            },
            _ => OpenFailure::Unreachable(message(&error)),
        }
    }
}

/// PostgreSQL's codes of failed connections.
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";
const INVALID_CATALOG_NAME: &str = "3D000";

/// Returns the message of the server, or of the client if the server sent none.
fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        error => error.to_string(),
    }
}

impl From<DbErr> for OpenFailure {
    fn from(error: DbErr) -> Self {
        OpenFailure::Store(error.into())
    }
}

impl From<sqlx::Error> for OpenFailure {
    fn from(error: sqlx::Error) -> Self {
        OpenFailure::Unreachable(message(&error))
    }
}
