//! A database for each unit test: on PostgreSQL in a run of the tests that has a server, else
//! SQLite. `make test` runs them on both.

use std::path::PathBuf;

use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend, Statement, TransactionTrait};
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
            None => sqlite::open_writer(&self.file()).await.unwrap(),
        }
    }

    /// Runs statements on another connection.
    pub(crate) async fn execute(&self, statements: &str) {
        let db = self.connect().await;
        db.execute_unprepared(statements).await.unwrap();
        db.close().await.unwrap();
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

/// Returns the steps in which the database runs a query on tables of many rows.
pub(crate) async fn explain(db: &DatabaseConnection, query: Statement) -> String {
    let backend = db.get_database_backend();
    let transaction = db.begin().await.unwrap();
    let (explain, column) = match backend {
        DbBackend::Postgres => {
            // It prefers to read and to sort tables that have a few rows.
            for preference in ["enable_seqscan", "enable_sort", "enable_bitmapscan"] {
                let set = format!("SET LOCAL {preference} = off");
                transaction.execute_unprepared(&set).await.unwrap();
            }
            ("EXPLAIN", "QUERY PLAN")
        }
        _ => ("EXPLAIN QUERY PLAN", "detail"),
    };
    let query = Statement::from_string(backend, format!("{explain} {query}"));
    let rows = transaction.query_all_raw(query).await.unwrap();
    let steps = rows.iter().map(|row| row.try_get("", column).unwrap());
    steps.collect::<Vec<String>>().join("\n")
}

/// Returns whether a query sorts what it has read.
pub(crate) fn is_sorting(plan: &str) -> bool {
    plan.contains("TEMP B-TREE") || plan.contains("Sort")
}
