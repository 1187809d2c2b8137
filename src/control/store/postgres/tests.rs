//! Tests of PostgreSQL alone, on the server of the run.

use std::time::Duration;

use chrono::Utc;
use secrecy::SecretString;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use url::Url;

use super::{config::UrlError, *};
use crate::control::store::{
    DatabaseReport, OpenError, Store, StoreError,
    test_database::{TestDatabase, postgres_database::PostgresDatabase},
};

fn parse(url: &str) -> Result<PostgresConfig, UrlError> {
    PostgresConfig::parse(&SecretString::from(url), 2)
}

async fn open(url: &Url) -> Result<Store, OpenError> {
    Store::open_postgres(&parse(url.as_str()).unwrap()).await
}

/// Opens a database that cannot be opened. Checks that the error names no password.
async fn failure(url: &Url) -> OpenFailure {
    let error = open(url).await.err().expect("an error");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("canary"), "{text}");
    }
    error.failure
}

#[test]
fn invalid_url_is_rejected_without_repeating_it() {
    let secret = "canary";
    for (url, expected) in [
        ("", "is not a URL"),
        ("mysql://berth@localhost/berth", "must begin with"),
        (
            "postgres://berth:12/canary@localhost/berth",
            "one path segment",
        ),
        ("postgres://berth:12#canary@localhost/berth", "no fragment"),
        (
            "postgres://berth:12?canary@localhost/berth",
            "unknown parameter",
        ),
        ("postgres://berth:canary?@localhost/berth", "is not a URL"),
        (
            "postgres://berth@localhost/berth?sslmode=maybe",
            "is invalid",
        ),
        ("postgres://berth@localhost/berth?port=x", "is invalid"),
        ("postgres://berth:canary@db.example/berth", "`sslmode`"),
        (
            "postgres://berth:canary@10.0.0.1/berth?dbname=x",
            "`sslmode`",
        ),
        ("postgres://localhost/berth?host=db.example", "`sslmode`"),
    ] {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains(expected), "{url}: {error}");
        assert!(!error.contains(secret), "{url}: {error}");
    }
    for url in [
        "postgres://berth:canary@localhost/berth",
        "postgresql://berth:canary@127.0.0.1:5433/berth",
        "postgres://berth:canary@%2Frun%2Fpostgresql/berth",
        "postgres://berth:canary@db.example/berth?sslmode=verify-full&sslrootcert=/ca.pem",
        "postgres:///berth?host=/run/postgresql&options=-csearch_path%3Dberth",
    ] {
        let config = parse(url).unwrap();
        for text in [config.to_string(), format!("{config:?}")] {
            assert!(text.contains("PostgreSQL database berth at "), "{text}");
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn url_of_the_command_line_has_no_password() {
    let parse = |url| PostgresConfig::parse_without_password(url, 2);
    for url in [
        "postgres://berth:canary@localhost/berth",
        "postgres://berth@localhost/berth?password=canary",
    ] {
        let error = parse(url).unwrap_err();
        assert_eq!(error, UrlError::Password);
        assert!(!error.to_string().contains("canary"));
    }
    parse("postgres://berth@localhost/berth").unwrap();
}

#[tokio::test]
async fn failed_connection_names_the_reason_and_no_password() {
    let database = PostgresDatabase::required();
    let url = database.tcp_url().await;
    open(&url).await.unwrap().close().await.unwrap();

    let mut wrong = url.clone();
    wrong
        .set_password(Some("canary-of-a-wrong-password"))
        .unwrap();
    let rejected = failure(&wrong).await;
    assert!(
        matches!(rejected, OpenFailure::Unauthorized(_)),
        "{rejected}"
    );

    let mut unknown = url.clone();
    unknown.set_username("nobody_has_this_name").unwrap();
    let rejected = failure(&unknown).await;
    assert!(
        matches!(rejected, OpenFailure::Unauthorized(_)),
        "{rejected}"
    );

    let mut missing = url.clone();
    missing.set_path("berth_missing");
    let message = failure(&missing).await.to_string();
    let advice = format!("CREATE DATABASE berth_missing OWNER {}", database.name);
    assert!(message.contains(&advice), "{message}");

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut closed = url.clone();
    closed.set_host(Some("127.0.0.1")).unwrap();
    closed
        .set_port(Some(free.local_addr().unwrap().port()))
        .unwrap();
    drop(free);
    let refused = failure(&closed).await;
    assert!(matches!(refused, OpenFailure::Unreachable(_)), "{refused}");
}

#[tokio::test]
async fn server_is_verified_with_tls() {
    let database = PostgresDatabase::required();
    let with = |url: &Url, parameters: &str| {
        let mut url = url.clone();
        url.set_query(Some(parameters));
        url
    };
    let url = database.tcp_url().await;
    let certificate = database.setting("ssl_cert_file").await;
    let trusted = with(
        &url,
        &format!("sslmode=verify-full&sslrootcert={certificate}"),
    );
    let store = open(&trusted).await.unwrap();
    let query = "SELECT 1 AS one FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";
    let row = store.db.query_one_raw(statement(query)).await.unwrap();
    assert!(row.is_some());
    store.close().await.unwrap();
    // The system's certificates have not signed this one.
    let unknown = failure(&with(&url, "sslmode=verify-full")).await;
    assert!(matches!(unknown, OpenFailure::Tls(_)), "{unknown}");
    // The socket has no TLS.
    let socket: Url = database.url().parse().unwrap();
    let refused = failure(&with(&socket, "sslmode=require")).await;
    assert!(matches!(refused, OpenFailure::Tls(_)), "{refused}");
}

fn statement(query: &str) -> sea_orm::Statement {
    sea_orm::Statement::from_string(sea_orm::DbBackend::Postgres, query.to_owned())
}

/// Serves one connection as a PostgreSQL server of that version, until it is ready for a query.
async fn serve_version(listener: TcpListener, version: &str) {
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut length = [0; 4];
    connection.read_exact(&mut length).await.unwrap();
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    connection.read_exact(&mut startup).await.unwrap();
    let parameter = format!("server_version\0{version}\0");
    let mut response = b"R\0\0\0\x08\0\0\0\0S".to_vec();
    response.extend(u32::try_from(parameter.len() + 4).unwrap().to_be_bytes());
    response.extend(parameter.as_bytes());
    response.extend(b"K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I");
    connection.write_all(&response).await.unwrap();
    // Until the client has gone.
    let _ = connection.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn old_server_is_refused_with_both_versions() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve_version(listener, "14.19 (Debian 14.19-1)"));
    let url = format!("postgres://berth@{address}/berth?sslmode=disable");
    let message = failure(&url.parse().unwrap()).await.to_string();
    let expected = "the server has version 14; the oldest supported version is 15";
    assert_eq!(message, expected);
    serving.await.unwrap();
}

#[tokio::test]
async fn database_with_another_encoding_or_without_writes_is_refused() {
    let database = PostgresDatabase::required();
    let name = &database.name;
    let url: Url = database.url().parse().unwrap();
    let read_only = format!("ALTER ROLE {name} SET default_transaction_read_only = on");
    database.execute_as_superuser(&[read_only]).await;
    let refused = failure(&url).await;
    assert!(matches!(refused, OpenFailure::ReadOnly), "{refused}");

    database
        .execute_as_superuser(&[
            format!("ALTER ROLE {name} RESET default_transaction_read_only"),
            format!("DROP DATABASE {name}"),
            format!(
                "CREATE DATABASE {name} OWNER {name} TEMPLATE template0 \
                 ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C'"
            ),
        ])
        .await;
    let refused = failure(&url).await;
    assert!(
        matches!(&refused, OpenFailure::Encoding(found) if found == "SQL_ASCII"),
        "{refused}"
    );
}

#[tokio::test]
async fn sessions_have_timeouts_and_a_name() {
    let database = TestDatabase::create();
    let db = database.connect().await;
    for (setting, expected) in [
        ("statement_timeout", "30s"),
        ("lock_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "30s"),
        ("default_transaction_isolation", "read committed"),
        ("application_name", "berth"),
    ] {
        let query = format!("SELECT current_setting('{setting}')");
        let row = db.query_one_raw(statement(&query)).await.unwrap().unwrap();
        let found: String = row.try_get_by_index(0).unwrap();
        assert_eq!(found, expected, "{setting}");
    }
    db.close().await.unwrap();
}

#[tokio::test]
async fn cancelled_and_disconnected_statements_are_unavailable() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let slow = "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)";
    let cancelled = store.db.execute_unprepared(slow).await.unwrap_err();
    let cancelled = StoreError::from(cancelled);
    assert!(
        matches!(cancelled, StoreError::Unavailable(_)),
        "{cancelled}"
    );

    let server = database.postgres.as_ref().unwrap();
    let sleeping = store.db.execute_unprepared("SELECT pg_sleep(60)");
    let disconnecting = async {
        let name = &server.name;
        let query = format!(
            "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '{name}' \
             AND wait_event = 'PgSleep') LOOP PERFORM pg_stat_clear_snapshot(); END LOOP; END $$"
        );
        server.execute_as_superuser(&[query]).await;
        server.disconnect_all().await;
    };
    let (disconnected, ()) = tokio::join!(sleeping, disconnecting);
    let disconnected = StoreError::from(disconnected.unwrap_err());
    assert!(
        matches!(disconnected, StoreError::Unavailable(_)),
        "{disconnected}"
    );
    until(async || store.ping().await.is_ok()).await;
    store.close().await.unwrap();
}

/// Waits for a condition.
pub(super) async fn until(condition: impl AsyncFn() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    waited.expect("the condition within 60 s");
}

#[tokio::test]
async fn migration_waits_for_that_of_another_process() {
    let database = TestDatabase::create();
    let other = database.connect().await;
    let transaction = sea_orm::TransactionTrait::begin(&other).await.unwrap();
    lock_migration(&transaction).await.unwrap();
    let opening = tokio::spawn({
        let config = database.config().unwrap();
        async move { Store::open_postgres(&config).await.map(|_| ()) }
    });
    let waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until(async || {
        other
            .query_one_raw(statement(waiting))
            .await
            .unwrap()
            .is_some()
    })
    .await;
    assert!(!opening.is_finished());
    transaction.commit().await.unwrap();
    opening.await.unwrap().unwrap();
    assert!(database.open().await.is_empty().await.unwrap());
    other.close().await.unwrap();
}

#[tokio::test]
async fn check_reports_version_rows_and_pending_migrations() {
    let database = TestDatabase::create();
    let config = database.config().unwrap();
    let report = DatabaseReport::of_postgres(&config).await.unwrap();
    assert!(
        report.database.contains(", version 1"),
        "{}",
        report.database
    );
    assert!(
        report.pending[0].starts_with("m0001_"),
        "{:?}",
        report.pending
    );
    assert_eq!(report.tables, []);
    let store = database.open().await;
    store.default_project("default", Utc::now()).await.unwrap();
    let report = DatabaseReport::of_postgres(&config).await.unwrap();
    assert_eq!(
        (&report.pending[..], &report.problems[..]),
        (&[][..], &[][..])
    );
    assert!(
        report.tables.contains(&("projects".to_owned(), 1)),
        "{:?}",
        report.tables
    );
    store.close().await.unwrap();
}

#[tokio::test]
async fn rotation_lock_is_held_by_one_process_until_it_ends() {
    let database = TestDatabase::create();
    let Some(config) = database.config() else {
        return;
    };
    let lock = RotationLock::try_acquire(&config).await.unwrap().unwrap();
    assert!(RotationLock::try_acquire(&config).await.unwrap().is_none());
    drop(lock);
    let is_free = async || RotationLock::try_acquire(&config).await.unwrap().is_some();
    until(is_free).await;
}
