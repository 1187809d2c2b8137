//! Opens a PostgreSQL database.
//!
//! - [`config`]: the URL, and the settings of every session.
//! - [`process_lock`]: which control processes serve from a database, and which of them leads.
//! - [`hints`]: notifies the other processes of changes.
//! - [`rotation_lock`]: excludes other rotations of keys.

use std::time::Duration;

use sea_orm::{
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, DbErr,
};
use sqlx::{Connection, postgres::PgConnection};

mod config;
mod hints;
#[cfg(test)]
mod migration_tests;
mod process_lock;
#[cfg(test)]
mod process_tests;
mod rotation_lock;
#[cfg(test)]
mod tests;

pub use config::{PostgresConfig, UrlError};
pub use hints::HintChannel;
pub(super) use process_lock::live_processes;
pub use process_lock::{Displaced, ProcessLock};
pub use rotation_lock::RotationLock;

use super::open_error::OpenFailure;

/// The oldest supported major version: that of Debian 12, with which the tests run.
const MIN_VERSION: u32 = 15;
/// `server_version_num` has the major version above four digits.
const VERSION_FACTOR: u32 = 10_000;

/// The longest time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait of a request for a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without use after which a connection is tested before it is used.
const IDLE_BEFORE_TEST: Duration = Duration::from_secs(1);
/// The longest wait for the migration of another process. It also bounds the wait of a migration
/// for the statements that run.
const MIGRATION_LOCK_TIMEOUT: &str = "60s";

/// The first key of control's advisory locks: "bert" in ASCII.
const LOCK_CLASS: i32 = 0x6265_7274;
/// The second key of the lock that is held during a migration.
const MIGRATION_LOCK: i32 = 1;

/// Connects to a database and checks that it can be used.
pub(super) async fn connect(config: &PostgresConfig) -> Result<DatabaseConnection, OpenFailure> {
    // The pool would repeat a refused connection until its timeout, and lose the reason.
    let mut first = connect_once(config).await?;
    check_server(&mut first).await?;
    first.close().await?;

    let session = config.options.clone();
    let mut options = ConnectOptions::new("postgres://");
    options
        .max_connections(config.connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire_if_idle_for(IDLE_BEFORE_TEST)
        .map_sqlx_postgres_opts(move |_| session.clone());
    Ok(Database::connect(options).await?)
}

/// Connects outside the pool.
async fn connect_once(config: &PostgresConfig) -> Result<PgConnection, OpenFailure> {
    let connecting = PgConnection::connect_with(&config.options);
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(OpenFailure::of_connecting(error, config)),
        Err(_) => Err(OpenFailure::Timeout(CONNECT_TIMEOUT.as_secs())),
    }
}

/// Checks the version, the encoding, and that the database can be written to.
async fn check_server(connection: &mut PgConnection) -> Result<(), OpenFailure> {
    // Sent by the server before any query.
    let major = connection
        .server_version_num()
        .map(|number| number / VERSION_FACTOR);
    if major.is_none_or(|major| major < MIN_VERSION) {
        return Err(OpenFailure::TooOld {
            found: major.map_or("unknown".to_owned(), |major| major.to_string()),
            minimum: MIN_VERSION,
        });
    }
    let encoding: String = sqlx::query_scalar("SELECT current_setting('server_encoding')")
        .fetch_one(&mut *connection)
        .await?;
    if encoding != "UTF8" {
        return Err(OpenFailure::Encoding(encoding));
    }
    let read_only: String = sqlx::query_scalar("SELECT current_setting('transaction_read_only')")
        .fetch_one(connection)
        .await?;
    match &*read_only {
        "off" => Ok(()),
        _ => Err(OpenFailure::ReadOnly),
    }
}

/// Waits until no other process migrates the database, and prevents that one does until the end of
/// the transaction. Lifts the limit on the duration of its statements.
pub(super) async fn lock_migration(transaction: &DatabaseTransaction) -> Result<(), DbErr> {
    for statement in [
        "SET LOCAL statement_timeout = 0".to_owned(),
        "SET LOCAL idle_in_transaction_session_timeout = 0".to_owned(),
        format!("SET LOCAL lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'"),
        format!("SELECT pg_advisory_xact_lock({LOCK_CLASS}, {MIGRATION_LOCK})"),
    ] {
        transaction.execute_unprepared(&statement).await?;
    }
    Ok(())
}
