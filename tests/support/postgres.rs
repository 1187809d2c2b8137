//! Databases on the PostgreSQL server that `scripts/postgres` starts for a run of the tests. Also a
//! module of the unit tests.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use url::Url;

/// Names the server of the run, as its superuser. Runs without it test SQLite.
const SERVER: &str = "BERTH_TEST_POSTGRES_URL";

/// A database with a user of its own, who owns it. Both are removed when it is dropped.
pub struct PostgresDatabase {
    server: Url,
    /// The name of the database and of its user.
    pub name: String,
    /// Also valid over TCP, where the server asks for it.
    pub password: String,
}

impl PostgresDatabase {
    /// Creates an empty database, if the run has a server. Blocks.
    pub fn create() -> Option<PostgresDatabase> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let database = PostgresDatabase {
            server,
            name: format!("berth_{}_{number}", std::process::id()),
            password: format!("canary-of-the-password-{}", uuid::Uuid::new_v4()),
        };
        let (name, password) = (&database.name, &database.password);
        block_on(database.execute_as_superuser(&[
            format!("CREATE ROLE {name} LOGIN PASSWORD '{password}'"),
            // The faster way to copy a small template.
            format!("CREATE DATABASE {name} OWNER {name} STRATEGY file_copy"),
        ]))
        .expect("a new database");
        Some(database)
    }

    /// Creates an empty database. For tests of PostgreSQL alone. Blocks.
    pub fn required() -> PostgresDatabase {
        let created = PostgresDatabase::create();
        created.expect("a server: run the tests with cargo nextest, which starts one")
    }

    /// Returns the URL of the database, with its user and password.
    pub fn url(&self) -> String {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url.set_username(&self.name).unwrap();
        url.set_password(Some(&self.password)).unwrap();
        url.into()
    }

    /// Returns the same for a connection over TCP, where the server checks the password.
    pub async fn tcp_url(&self) -> Url {
        let address = self.setting("listen_addresses").await;
        let (name, password) = (&self.name, &self.password);
        let port = self.setting("port").await;
        let url = format!("postgres://{name}:{password}@{address}:{port}/{name}");
        url.parse().unwrap()
    }

    /// Returns a setting of the server.
    pub async fn setting(&self, name: &str) -> String {
        let mut connection = self.connect_as_superuser().await;
        let query = format!("SELECT current_setting('{name}')");
        let query = sqlx::query_scalar(AssertSqlSafe(query));
        query.fetch_one(&mut connection).await.unwrap()
    }

    /// Runs statements outside of the database.
    pub async fn execute_as_superuser(&self, statements: &[String]) {
        let mut connection = self.connect_as_superuser().await;
        for statement in statements {
            let result = sqlx::raw_sql(AssertSqlSafe(statement.clone()));
            result.execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    }

    async fn connect_as_superuser(&self) -> PgConnection {
        PgConnection::connect(self.server.as_str()).await.unwrap()
    }

    /// Ends all connections to the database, as a restart of the server does.
    pub async fn disconnect_all(&self) {
        let name = &self.name;
        let statement = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        self.execute_as_superuser(&[statement]).await;
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let name = &self.name;
        let statements = [
            format!("DROP DATABASE {name} WITH (FORCE)"),
            format!("DROP ROLE {name}"),
        ];
        let removed = block_on(self.execute_as_superuser(&statements));
        assert!(removed.is_ok() || std::thread::panicking(), "{name}");
    }
}

/// Runs a future on a thread of its own, because a test's runtime cannot wait within another one.
fn block_on(future: impl Future<Output = ()> + Send) -> std::thread::Result<()> {
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(future);
    };
    std::thread::scope(|scope| scope.spawn(run).join())
}

#[expect(clippy::disallowed_methods, reason = "a setting of the tests")]
fn server() -> Option<Url> {
    let url = std::env::var(SERVER).ok()?;
    Some(url.parse().expect("a URL"))
}
