//! The state directory and the database of a server.

use std::{
    fs::Permissions, os::unix::fs::PermissionsExt, path::PathBuf, process::Command, sync::Arc,
};

use sea_orm::{ConnectionTrait, DatabaseConnection, QueryResult, Statement};
use tempfile::TempDir;

use super::{dev::berth, postgres::PostgresDatabase};

/// Returns a directory that control accepts as a shared blob store.
pub fn private_directory() -> TempDir {
    let mut private = tempfile::Builder::new();
    private.permissions(Permissions::from_mode(0o700));
    private.tempdir().unwrap()
}

/// A state directory and a database, which can be passed on to a second start.
pub struct State {
    directory: TempDir,
    /// `None` for SQLite.
    pub database: Option<Arc<PostgresDatabase>>,
}

impl State {
    pub fn new() -> State {
        State::with(PostgresDatabase::create())
    }

    pub fn with(database: Option<PostgresDatabase>) -> State {
        let directory = TempDir::with_prefix("berth-test-").unwrap();
        State {
            directory,
            database: database.map(Arc::new),
        }
    }

    /// Returns another directory with the same database.
    pub fn beside(&self) -> State {
        State {
            database: self.database.clone(),
            ..State::with(None)
        }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Returns the variables that select the database.
    pub fn variables(&self) -> Option<(&'static str, String)> {
        let url = self.database.as_ref()?.url();
        Some(("BERTH_DATABASE_URL", url))
    }

    /// Runs a statement on the database.
    pub async fn sql(&self, statement: &str) {
        let db = self.connect().await;
        db.execute_unprepared(statement).await.unwrap();
        db.close().await.unwrap();
    }

    /// Connects to the database.
    pub async fn connect(&self) -> DatabaseConnection {
        let file = self.path().join("berth.db");
        let url = match &self.database {
            Some(database) => database.url(),
            None => format!("sqlite:{}", file.display()),
        };
        sea_orm::Database::connect(url).await.unwrap()
    }

    /// Returns the rows of a query.
    pub async fn rows(&self, query: &str) -> Vec<QueryResult> {
        let db = self.connect().await;
        let statement = Statement::from_string(db.get_database_backend(), query);
        let rows = db.query_all_raw(statement).await.unwrap();
        db.close().await.unwrap();
        rows
    }

    /// Returns a command that uses the state directory and the database.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = berth(arguments);
        command.arg("--state-dir").arg(self.path());
        command.envs(self.variables());
        command
    }
}
