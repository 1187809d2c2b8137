//! Control on PostgreSQL: what differs from SQLite. All other tests of control run on both.

mod login_readers;
mod logins;
mod several_processes;
mod upgrade;
mod webhooks;

use std::{fs, process::Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::dev::{Answer, Dev, State, berth};
use crate::support::postgres::PostgresDatabase;
use crate::support::printed::print;
use crate::support::processes;
use crate::support::wait::until;

async fn start() -> Dev {
    let state = State::with(Some(PostgresDatabase::required()));
    Dev::start_in(state, &[]).await
}

#[tokio::test]
async fn second_control_process_of_a_database_is_refused() {
    let dev = start().await;
    let browser = dev.browser(json!({"name": "n"})).await;
    let other = tempfile::tempdir().unwrap();
    let control = || {
        let mut command = berth(&["control", "--listen", "127.0.0.1:0", "--state-dir"]);
        command.arg(other.path()).envs(dev.variables());
        command
    };
    let refused = print(control()).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let expected = format!(
        ":{}) uses it; stop that one first",
        dev.state_dir().display()
    );
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    let found = dev.get("/browsers/n").await;
    assert_eq!(found.body["session_id"], browser["session_id"]);

    // A key can be created from anywhere.
    let mut command = berth(&["key", "create", "--name", "k", "--state-dir"]);
    command.arg(other.path()).envs(dev.variables());
    let created = print(command).await;
    let request = dev.anonymous(Method::GET, "/browsers/n");
    let response = Answer::of(request.bearer_auth(created.stdout.trim())).await;
    assert_eq!(response.status, StatusCode::OK);

    let variables = dev.variables();
    let state = dev.finish().await;
    let mut command = berth(&["control", "--listen", "127.0.0.1:0", "--state-dir"]);
    command.arg(other.path()).envs(variables);
    let refused = print(command).await;
    let expected = format!(":{}; select that one", state.path().display());
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    Dev::start_in(state, &[]).await.finish().await;
}

#[tokio::test]
async fn browsers_survive_a_restart_of_the_database() {
    let dev = start().await;
    dev.browser(json!({"name": "n"})).await;
    let database = dev.postgres().unwrap();
    let name = &database.name;
    let limit = |count: i32| [format!("ALTER ROLE {name} CONNECTION LIMIT {count}")];
    database.execute_as_superuser(&limit(0)).await;
    database.disconnect_all().await;
    until("the server to notice that it has no database", async || {
        let health = dev.get("/health").await;
        (health.status == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    let refused = dev.post("/org/api_keys", json!({"name": "k"})).await;
    refused.assert_error(503, "unavailable");
    assert_ne!(refused.header("retry-after"), "");
    database.execute_as_superuser(&limit(-1)).await;
    until("the server to connect again", async || {
        let health = dev.get("/health").await;
        (health.status == StatusCode::OK).then_some(())
    })
    .await;
    let found = dev.get("/browsers/n").await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.body);
    let log = dev.log();
    assert!(log.contains("the database is unavailable"), "{log}");
    until(
        "the locks of the database to be acquired again",
        async || {
            let log = dev.log();
            log.contains("acquired the locks of the database again")
                .then_some(())
        },
    )
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn wrong_password_is_reported_without_it() {
    let database = PostgresDatabase::required();
    let mut url = database.tcp_url().await;
    url.set_password(Some("canary")).unwrap();
    for arguments in [
        &["database", "check"][..],
        &["control"],
        &["key", "create", "--name", "k"],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = berth(arguments);
        command.arg("--state-dir").arg(directory.path());
        command.env("BERTH_DATABASE_URL", url.as_str());
        command.args(["--log", "trace"]);
        if arguments == ["control"] {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let refused = print(command).await;
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        let expected = "the server rejects the user or the password";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        assert!(!refused.stderr.contains("canary"), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn lost_database_is_noticed_by_the_replays_beside_it() {
    let state = State::with(Some(PostgresDatabase::required()));
    let replays = state.path().join("blobs/replays");
    fs::create_dir_all(&replays).unwrap();
    fs::write(replays.join("rep_01jd0000000000000000000000.mp4"), "video").unwrap();
    fs::write(state.path().join("lock"), "").unwrap();
    let refused = print(state.command(&["control", "--listen", "127.0.0.1:0"])).await;
    assert_eq!(refused.status.code(), Some(1));
    let name = &state.database.as_ref().unwrap().name;
    let expected = format!("the database PostgreSQL database {name} at ");
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("is empty, but"),
        "{}",
        refused.stderr
    );
}

#[tokio::test]
async fn server_of_the_tests_ends_with_the_process_that_started_it() {
    let directory = tempfile::tempdir().unwrap();
    let variables = directory.path().join("variables");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/postgres");
    let mut starter = tokio::process::Command::new("sh")
        .args(["-c", "\"$0\" && read -r _", script])
        .env("NEXTEST_ENV", &variables)
        .env_remove("BERTH_TEST_POSTGRES_URL")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let url = until("the server", async || {
        let text = fs::read_to_string(&variables).ok()?;
        text.strip_suffix("/postgres\n").map(str::to_owned)
    })
    .await;
    let server = url.split_once('@').unwrap().1.replace("%2F", "/");
    assert!(processes::naming(server.as_ref()).len() >= 2);
    let pid = Pid::from_raw(starter.id().unwrap().cast_signed());
    kill(pid, Signal::SIGKILL).unwrap();
    starter.wait().await.unwrap();
    until("the end of the server and of its files", async || {
        let is_gone = processes::naming(server.as_ref()).is_empty();
        (is_gone && !fs::exists(&server).unwrap()).then_some(())
    })
    .await;
}

/// PostgreSQL rejects texts with NUL, which SQLite stores.
#[tokio::test]
async fn text_with_nul_is_no_server_error() {
    let dev = start().await;
    let id = dev.browser(json!({"name": "n"})).await["session_id"].clone();
    let id = id.as_str().unwrap();
    for path in [
        "/browsers?query=%00",
        "/browsers?tags[a%00]=b",
        "/browsers?tags[a]=b%00",
        "/browsers/%00",
        "/browsers/n%00/json/version",
        &format!("/browsers/{id}/replays/%00"),
        "/org/api_keys/%00",
    ] {
        let response = dev.get(path).await;
        assert!(
            !response.status.is_server_error(),
            "{path}: {}",
            response.body
        );
    }
    for (path, body) in [
        ("/browsers", json!({"name": "a\0"})),
        ("/browsers", json!({"tags": {"a\0": "b"}})),
        ("/browsers", json!({"tags": {"a": "b\0"}})),
        ("/org/api_keys", json!({"name": "a\0"})),
        ("/org/api_keys", json!({"name": "a", "project_id": "\0"})),
    ] {
        let response = dev.post(path, body.clone()).await;
        assert!(
            response.status.is_client_error(),
            "{body}: {}",
            response.body
        );
    }
    dev.finish().await;
}

/// Runs a program of PostgreSQL as its superuser.
async fn run_as_superuser(database: &PostgresDatabase, program: &str, arguments: &[&str]) {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .env("PGHOST", database.setting("unix_socket_directories").await)
        .env("PGUSER", "admin")
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

#[tokio::test]
async fn backup_is_restored_with_the_documented_commands() {
    let dev = start().await;
    let key = dev.api_key.clone();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("backup");
    let file = file.to_str().unwrap();
    let database = dev.postgres().unwrap();
    let name = database.name.clone();
    let backup = ["--format=custom", &format!("--file={file}"), &name];
    run_as_superuser(database, "pg_dump", &backup).await;
    dev.post("/org/api_keys", json!({"name": "later"})).await;
    let state = dev.finish().await;

    let database = state.database.as_ref().unwrap();
    let create = format!("CREATE DATABASE {name} OWNER {name}");
    let drop = format!("DROP DATABASE {name}");
    database.execute_as_superuser(&[drop, create]).await;
    let into = format!("--dbname={name}");
    let restore = ["--exit-on-error", "--single-transaction", &into, file];
    run_as_superuser(database, "pg_restore", &restore).await;
    let checked = print(state.command(&["database", "check"])).await;
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(dev.api_key, key);
    let keys = dev.get("/org/api_keys").await.body;
    assert_eq!(keys.as_array().unwrap().len(), 1, "{keys}");
    dev.finish().await;
}
