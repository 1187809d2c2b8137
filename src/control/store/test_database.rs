//! A database for each unit test: on PostgreSQL in a run of the tests that has a server, else
//! SQLite. `make test` runs them on both.

use std::path::PathBuf;

use sea_orm::DatabaseConnection;
use tempfile::TempDir;

use super::{PostgresConfig, Store, postgres, sqlite};

#[path = "../../../tests/support/postgres.rs"]
#[expect(unreachable_pub, reason = "also a module of the integration tests")]
pub(crate) mod postgres_database;

use postgres_database::PostgresDatabase;

/// The number of connections to PostgreSQL.
const CONNECTIONS: u32 = 8;

/// A database that is removed with this value.
pub(crate) struct TestDatabase {
    directory: TempDir,
    pub(crate) postgres: Option<PostgresDatabase>,
}

impl TestDatabase {
    /// Creates an empty database.
    pub(crate) fn create() -> TestDatabase {
        TestDatabase {
            directory: tempfile::tempdir().unwrap(),
            postgres: PostgresDatabase::create(),
        }
    }

    /// Opens the database and migrates it.
    pub(crate) async fn open(&self) -> Store {
        match self.config() {
            Some(config) => Store::open_postgres(&config).await.unwrap(),
            None => Store::open_sqlite(&self.file()).await.unwrap(),
        }
    }

    /// Connects to the database as it is.
    pub(crate) async fn connect(&self) -> DatabaseConnection {
        match self.config() {
            Some(config) => postgres::connect(&config).await.unwrap(),
            None => sqlite::open(&self.file()).await.unwrap(),
        }
    }

    /// Returns the address of a PostgreSQL database.
    pub(crate) fn config(&self) -> Option<PostgresConfig> {
        let database = self.postgres.as_ref()?;
        let url = database.url().into();
        Some(PostgresConfig::parse(&url, CONNECTIONS).unwrap())
    }

    /// Returns the file of a SQLite database.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("db")
    }
}
