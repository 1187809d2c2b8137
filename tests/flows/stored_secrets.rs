//! The keys of stored secrets: `berth secrets`, and what control does without the right ones.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use serde_json::json;

use crate::support::{
    dev::{Dev, State},
    printed::{Printed, print},
    random::{Random, setting},
};

const TOTP_SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

/// Writes a file of keys, each of one repeated digit, and returns its path.
fn key_file(state: &State, digits: &[char]) -> PathBuf {
    let file = state.path().join("keys");
    let keys = digits.iter().map(|digit| digit.to_string().repeat(64));
    fs::write(&file, keys.collect::<Vec<_>>().join("\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

async fn secrets(state: &State, arguments: &[&str]) -> Printed {
    let file = state.path().join("keys");
    let options = ["--secrets-key-file", file.to_str().unwrap()];
    print(state.command(&[&["secrets"], arguments, &options[..]].concat())).await
}

async fn start(state: State) -> Dev {
    let file = state.path().join("keys").display().to_string();
    Dev::start_in(state, &["--secrets-key-file", &file]).await
}

/// Starts control with the key `1`, and stores secrets in several projects.
async fn state_with_secrets(projects: usize) -> State {
    let state = State::new();
    fs::create_dir_all(state.path()).unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
    key_file(&state, &['1']);
    let dev = start(state).await;
    for number in 0..projects {
        let project = json!({"name": format!("project-{number}")});
        let project = dev.post("/org/projects", project).await.body["id"].clone();
        let credential =
            json!({"name": "shop", "domain": "example.com", "totp_secret": TOTP_SECRET});
        let request = dev.request(reqwest::Method::POST, "/credentials");
        let request = request.header("x-project-id", project.as_str().unwrap());
        let created = request.json(&credential).send().await.unwrap();
        assert_eq!(created.status(), 201);
    }
    dev.finish().await
}

/// Starts control and reads a secret of each project.
async fn assert_readable(state: State, projects: usize) -> State {
    let dev = start(state).await;
    for number in 0..projects {
        let request = dev.request(reqwest::Method::GET, "/credentials/shop/totp-code");
        let request = request.header("x-kernel-project", format!("project-{number}"));
        let code = request.send().await.unwrap();
        assert_eq!(code.status(), 200, "{number}");
    }
    dev.finish().await
}

fn key_line(printed: &Printed, part: &str) -> String {
    let mut lines = printed.stdout.lines();
    let line = lines.find(|line| line.contains(part));
    line.unwrap_or_else(|| panic!("no {part} in {}", printed.stdout))
        .to_owned()
}

/// Returns the id of the key in a line of `berth secrets status`.
fn id_in(line: &str) -> String {
    let id = line.strip_prefix("key ").unwrap().split(':').next();
    id.unwrap().to_owned()
}

#[tokio::test]
async fn keys_are_rotated_and_the_old_one_is_retired() {
    let state = state_with_secrets(2).await;
    let status = secrets(&state, &["status"]).await;
    let old = id_in(&key_line(&status, "needed for 3 data keys"));

    key_file(&state, &['2', '1']);
    let plan = secrets(&state, &["rotate", "--plan"]).await;
    assert!(
        plan.stdout.contains("3 data keys would be wrapped"),
        "{}",
        plan.stdout
    );
    let refused = secrets(&state, &["retire", &old]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("3 data keys are wrapped"),
        "{}",
        refused.stderr
    );
    let applied = secrets(&state, &["rotate", "--apply"]).await;
    assert!(
        applied.stdout.contains("3 data keys were wrapped"),
        "{}",
        applied.stdout
    );
    let again = secrets(&state, &["rotate", "--apply"]).await;
    assert!(
        again.stdout.contains("0 data keys were wrapped"),
        "{}",
        again.stdout
    );
    let status = secrets(&state, &["status"]).await;
    let new = id_in(&key_line(&status, "wraps new data keys, needed for 3"));
    assert!(key_line(&status, &old).ends_with("not needed"));
    let refused = secrets(&state, &["retire", &new]).await;
    assert!(
        refused.stderr.contains("wraps new data keys"),
        "{}",
        refused.stderr
    );
    let unknown = secrets(&state, &["retire", "0011223344556677"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let retired = secrets(&state, &["retire", &old]).await;
    assert_eq!(retired.status.code(), Some(0), "{}", retired.stderr);

    key_file(&state, &['2']);
    let state = assert_readable(state, 2).await;
    // The retired key does not come back.
    key_file(&state, &['1', '2']);
    let refused = secrets(&state, &["rotate", "--apply"]).await;
    assert!(refused.stderr.contains("is retired"), "{}", refused.stderr);
    let file = state.path().join("keys").display().to_string();
    let options = [
        "dev",
        "--listen",
        "127.0.0.1:0",
        "--secrets-key-file",
        &file,
    ];
    let refused = print(state.command(&options)).await;
    assert!(refused.stderr.contains("is retired"), "{}", refused.stderr);
}

#[tokio::test]
async fn status_and_plan_leave_a_database_with_pending_migrations_as_it_is() {
    let state = State::new();
    fs::create_dir(state.path()).unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
    key_file(&state, &['1']);
    let commands = [&["status"][..], &["rotate", "--plan"]];
    let file = state.path().join("berth.db");
    if state.database.is_none() {
        for command in commands {
            let refused = secrets(&state, command).await;
            assert_eq!(refused.status.code(), Some(1), "{}", refused.stdout);
            let expected = "berth.db: there is no such file";
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
            assert!(!file.exists());
        }
        fs::write(&file, "").unwrap();
    }
    let check = || print(state.command(&["database", "check"]));
    let before = check().await;
    assert_eq!(before.status.code(), Some(3), "{}", before.stderr);
    for command in commands {
        let refused = secrets(&state, command).await;
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stdout);
        let expected = "migrations are pending: run berth database migrate";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        assert_eq!(check().await.stdout, before.stdout);
    }
    let migrated = print(state.command(&["database", "migrate"])).await;
    assert_eq!(migrated.status.code(), Some(0), "{}", migrated.stderr);
    for command in commands {
        let read = secrets(&state, command).await;
        assert_eq!(read.status.code(), Some(0), "{}", read.stderr);
    }
}

#[tokio::test]
async fn control_does_not_start_without_the_key_that_it_names() {
    let state = state_with_secrets(1).await;
    let id = id_in(&key_line(
        &secrets(&state, &["status"]).await,
        "needed for 2",
    ));
    key_file(&state, &['2']);
    let file = state.path().join("keys").display().to_string();
    let start = ["dev", "--listen", "127.0.0.1:0"];
    let wrong = [&start[..], &["--secrets-key-file", &file]].concat();
    for options in [&start[..], &wrong] {
        let refused = print(state.command(options)).await;
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        let expected = format!("need the key {id}");
        assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    }
    // Nothing was written in its place.
    assert!(!state.path().join("secrets-key").exists());
    let missing = key_line(&secrets(&state, &["status"]).await, "MISSING");
    assert_eq!(id_in(&missing), id);
    let refused = secrets(&state, &["rotate", "--apply"]).await;
    assert!(refused.stderr.contains(&id), "{}", refused.stderr);
    key_file(&state, &['1']);
    assert_readable(state, 1).await;
}

#[tokio::test]
async fn key_of_the_state_directory_is_private_and_its_loss_is_noticed() {
    let dev = Dev::start().await;
    let file = dev.state_dir().join("secrets-key");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let state = dev.finish().await;
    let moved = state.path().join("moved");
    fs::rename(&file, &moved).unwrap();
    let options = ["dev", "--listen", "127.0.0.1:0"];
    let refused = print(state.command(&options)).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let expected = "the state directory has no file secrets-key";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    fs::rename(&moved, &file).unwrap();
    fs::write(&file, "planted-key").unwrap();
    let refused = print(state.command(&options)).await;
    assert!(
        refused.stderr.contains("line 1 is not a key"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("planted"), "{}", refused.stderr);
}

#[tokio::test]
async fn second_rotation_is_refused() {
    let state = state_with_secrets(1).await;
    if state.database.is_some() {
        // The lock is in the database: see the unit tests.
        return;
    }
    let lock = fs::File::create(state.path().join("secrets.lock")).unwrap();
    lock.lock().unwrap();
    for arguments in [&["rotate", "--apply"][..], &["retire", "0011223344556677"]] {
        let refused = secrets(&state, arguments).await;
        assert_eq!(refused.status.code(), Some(1));
        let expected = "another rotation is in progress";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    drop(lock);
    let applied = secrets(&state, &["rotate", "--apply"]).await;
    assert_eq!(applied.status.code(), Some(0), "{}", applied.stderr);
}

#[tokio::test]
async fn killed_rotation_leaves_everything_readable() {
    const PROJECTS: usize = 12;
    let mut state = state_with_secrets(PROJECTS).await;
    let seed = setting("BERTH_TEST_ROTATION_SEED", 1);
    let mut random = Random::new(seed, 0);
    let mut digits = ['1', '2'];
    for _ in 0..6 {
        digits.reverse();
        key_file(&state, &digits);
        let file = state.path().join("keys").display().to_string();
        let command = state.command(&["secrets", "rotate", "--apply", "--secrets-key-file", &file]);
        let mut command = tokio::process::Command::from(command);
        command.stdout(std::process::Stdio::null());
        let mut rotation = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        // Anywhere in its run, which takes about as long.
        let delay = Duration::from_millis(random.below(200) as u64);
        let _ = tokio::time::timeout(delay, rotation.wait()).await;
        rotation.kill().await.unwrap();
        let plan = secrets(&state, &["rotate", "--plan"]).await;
        assert_eq!(plan.status.code(), Some(0), "{}", plan.stderr);
    }
    state = assert_readable(state, PROJECTS).await;
    let applied = secrets(&state, &["rotate", "--apply"]).await;
    assert_eq!(applied.status.code(), Some(0), "{}", applied.stderr);
    key_file(&state, &digits[..1]);
    assert_readable(state, PROJECTS).await;
}
