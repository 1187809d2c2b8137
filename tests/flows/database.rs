//! `berth database` and the settings of the database.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{
    dev::{Dev, State, berth},
    printed::{Printed, print},
};

async fn run(state: &State, subcommand: &str) -> Printed {
    print(state.command(&["database", subcommand])).await
}

#[tokio::test]
async fn database_is_migrated_checked_and_then_served_from() {
    let state = State::new();
    let (code, text) = match state.database {
        // A check creates no file.
        None => (1, "there is no such file"),
        Some(_) => (3, "migrations are pending: run berth database migrate"),
    };
    let checked = run(&state, "check").await;
    assert_eq!(checked.status.code(), Some(code), "{}", checked.stderr);
    let output = checked.stdout + &checked.stderr;
    assert!(output.contains(text), "{output}");
    assert!(!state.path().exists());

    let migrated = run(&state, "migrate").await;
    assert_eq!(migrated.status.code(), Some(0), "{}", migrated.stderr);
    let first = "applied m0001_projects_keys_browsers\napplied m0002_replays\n";
    assert!(migrated.stdout.starts_with(first), "{}", migrated.stdout);
    let again = run(&state, "migrate").await.stdout;
    assert!(again.ends_with(": 0 migrations applied\n"), "{again}");
    for (table, rows) in [("projects", 0), ("api_keys", 0), ("browser_tags", 0)] {
        let checked = run(&state, "check").await;
        assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
        let line = format!("table {table}: {rows} rows\n");
        assert!(checked.stdout.contains(&line), "{}", checked.stdout);
    }

    let dev = Dev::start_in(state, &[]).await;
    let state = dev.finish().await;
    let checked = run(&state, "check").await;
    assert!(
        checked.stdout.contains("table api_keys: 1 rows\n"),
        "{}",
        checked.stdout
    );
    assert!(
        checked.stdout.ends_with("the database can be used\n"),
        "{}",
        checked.stdout
    );
}

#[tokio::test]
async fn schema_of_a_newer_version_is_refused() {
    let dev = Dev::start().await;
    dev.sql("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_future', 0)")
        .await;
    let state = dev.finish().await;
    for arguments in [
        &["database", "check"][..],
        &["database", "migrate"],
        &["key", "create", "--name", "k"],
        &["control", "--listen", "127.0.0.1:0"],
    ] {
        let refused = print(state.command(arguments)).await;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        let expected = "has the migration m9999_future, which this program does not know";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn damaged_sqlite_file_fails_the_check() {
    let state = State::with(None);
    assert!(run(&state, "migrate").await.status.success());
    let file = state.path().join("berth.db");
    let mut content = fs::read(&file).unwrap();
    // The second page, of which the first bytes describe the cells.
    content[4096..4196].fill(0xff);
    fs::write(&file, content).unwrap();
    let checked = run(&state, "check").await;
    assert_eq!(checked.status.code(), Some(1), "{}", checked.stdout);
    let output = checked.stdout + &checked.stderr;
    assert!(
        output.contains("damaged") || output.contains("malformed"),
        "{output}"
    );
}

#[tokio::test]
async fn invalid_database_settings_are_errors_without_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    fs::write(&file, "postgres://berth:canary@db.example/berth\n").unwrap();
    let file = file.to_str().unwrap();
    let set_mode = |mode| fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    let by_file = ["--database-url-file", file];
    let url = "postgres://berth:canary@localhost/berth";
    set_mode(0o644);
    for (options, variable, expected) in [
        (&by_file[..], None, "can be read by others: chmod 600 it"),
        (
            &["--database-url", url],
            None,
            "--database-url must have no password",
        ),
        (&[], Some(""), "BERTH_DATABASE_URL is not a URL"),
        (
            &[],
            Some("mysql://berth:canary@localhost/x"),
            "must begin with postgres://",
        ),
        (
            &[],
            Some("postgres://berth:canary@db.example/x"),
            "must have the parameter `sslmode`",
        ),
        (
            &["--database-connections", "1"],
            None,
            "1 is not in 2..=500",
        ),
    ] {
        let mut command = berth(&["check", "control"]);
        command.args(options);
        command.envs(variable.map(|value| ("BERTH_DATABASE_URL", value)));
        let checked = print(command).await;
        assert!(!checked.status.success(), "{expected}");
        assert!(checked.stderr.contains(expected), "{}", checked.stderr);
        assert!(!checked.stderr.contains("canary"), "{}", checked.stderr);
    }
    set_mode(0o600);
    let mut command = berth(&["check", "control"]);
    let checked = print({
        command.args(by_file);
        command
    })
    .await;
    assert!(
        checked
            .stderr
            .contains(&format!("the database URL of {file} must have")),
        "{}",
        checked.stderr
    );
    assert!(!checked.stderr.contains("canary"), "{}", checked.stderr);
}
