//! `berth profile import` with profiles that Chromium has made.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    routing::{post, put},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, process::Command};

use crate::support::{
    agent::{Start, TestAgent},
    files::untar,
    site::Site,
    wait::in_time,
};

const API_KEY: &str = "the-api-key-of-an-import";

/// The outcome of a command.
struct Outcome {
    succeeded: bool,
    stdout: String,
    stderr: String,
}

async fn import(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command
        .args(["profile", "import"])
        .args(arguments)
        .env("BERTH_API_KEY", API_KEY);
    let output = in_time("the import", command.output()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Outcome {
        succeeded: output.status.success(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

async fn visit(agent: &TestAgent, site: &Site, page: &str) -> (String, String) {
    let url = format!("{}{page}", site.url);
    let request = agent.put("/chromium/start_url").json(&json!({"url": url}));
    agent.ok(request).await;
    let visit = site.visit(page).await;
    (visit["cookie"].clone(), visit["stored"].clone())
}

/// Returns a user-data directory in which a site has a login.
async fn profile_with_login(site: &Site) -> (TempDir, PathBuf) {
    let agent = Start::headless().ready().await;
    visit(&agent, site, "/login").await;
    let response = agent.get("/user_data").send().await.unwrap();
    let archive = in_time("an archive", response.bytes()).await.unwrap();
    agent.stop().await;
    let directory = TempDir::new().unwrap();
    let user_data = directory.path().join("user-data");
    untar(&archive, &user_data);
    (directory, user_data)
}

#[tokio::test]
async fn imported_profile_has_the_logins() {
    let site = Site::serve().await;
    let (directory, user_data) = profile_with_login(&site).await;
    let profile = user_data.join("Default");
    fs::create_dir_all(profile.join("Extensions").join("a".repeat(32))).unwrap();
    let output = directory.path().join("profile.tar.zst");
    let paths = [user_data.to_str().unwrap(), output.to_str().unwrap()];
    let outcome = import(&[paths[0], "--output", paths[1]]).await;
    assert!(outcome.succeeded, "{}", outcome.stderr);
    for line in [
        &format!("wrote {} (", output.display()),
        "\ncookies: 1\n  127.0.0.1: 1\n",
        &format!("\norigins with stored data: 1\n  {}\n", site.url),
        "\n  settings and permissions of sites",
        "\n  extensions: 1",
        "\n  autofill and payment data",
    ] {
        assert!(outcome.stdout.contains(line), "{line}: {}", outcome.stdout);
    }
    let mode = fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = import(&[paths[0], "--output", paths[1]]).await;
    assert!(
        !again.succeeded && again.stderr.contains("File exists"),
        "{}",
        again.stderr
    );

    let agent = Start::headless().ready().await;
    let before = agent.chromium_number("generation").await;
    let archive = fs::read(&output).unwrap();
    let (status, response) = agent.answer(agent.put("/user_data").body(archive)).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    agent
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > Some(before)
        })
        .await;
    let found = visit(&agent, &site, "/check").await;
    assert_eq!(found, ("login=now".to_owned(), "here".to_owned()));
    agent.stop().await;
}

/// A server in place of control, which records the requests of an import.
struct RecordingControl {
    url: String,
    requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl RecordingControl {
    /// Serves responses to the creation and to the upload.
    async fn serve(created: (u16, Value), uploaded: (u16, Value)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<(HeaderMap, Bytes)>>>::default();
        let answer = |(status, body): (u16, Value)| {
            let recorded = requests.clone();
            async move |headers: HeaderMap, request: Bytes| {
                recorded.lock().push((headers, request));
                (StatusCode::from_u16(status).unwrap(), Json(body))
            }
        };
        let app = Router::new()
            .route("/base/profiles", post(answer(created)))
            .route("/base/profiles/work/upload", put(answer(uploaded)));
        tokio::spawn(async move { axum::serve(listener, app).await });
        RecordingControl {
            url: format!("{url}/base/"),
            requests,
        }
    }

    async fn import(&self, directory: &Path, more: &[&str]) -> Outcome {
        let directory = directory.to_str().unwrap();
        let arguments = [directory, "--name", "work", "--url", &self.url];
        import(&[&arguments[..], more].concat()).await
    }
}

/// Writes the least that counts as a user-data directory.
fn write_profile(user_data: &Path) {
    fs::create_dir_all(user_data.join("Default")).unwrap();
    fs::write(user_data.join("Local State"), "{}").unwrap();
    fs::write(user_data.join("Last Version"), "156.0.8078.79").unwrap();
    fs::write(user_data.join("Default/Preferences"), "{}").unwrap();
    fs::write(user_data.join("Default/Bookmarks"), "{}").unwrap();
}

fn error(code: &str, message: &str) -> Value {
    json!({"code": code, "message": message, "details": [], "inner_error": null})
}

#[tokio::test]
async fn archive_is_uploaded_to_a_new_or_known_profile() {
    let directory = TempDir::new().unwrap();
    write_profile(directory.path());
    let created = (201, json!({"id": "prof_1", "name": "work"}));
    let known = (409, error("conflict", "a profile has this name"));
    for created in [created, known] {
        let receipt = (201, json!({"profile_id": "prof_1", "version": 3}));
        let control = RecordingControl::serve(created, receipt).await;
        let more = ["--project", "proj_1"];
        let outcome = control
            .import(&directory.path().join("Default"), &more)
            .await;
        assert!(outcome.succeeded, "{}", outcome.stderr);
        let start = "imported profile work, version 3 (";
        assert!(outcome.stdout.starts_with(start), "{}", outcome.stdout);
        let requests = control.requests.lock();
        let [(headers, create), (upload_headers, archive)] = &requests[..] else {
            panic!("{} requests", requests.len());
        };
        assert_eq!(create, r#"{"name":"work"}"#);
        for headers in [headers, upload_headers] {
            assert_eq!(headers["authorization"], format!("Bearer {API_KEY}"));
            assert_eq!(headers["x-project-id"], "proj_1");
        }
        assert_eq!(upload_headers["content-length"], archive.len().to_string());
        let unpacked = directory.path().join("unpacked");
        untar(archive, &unpacked);
        assert_eq!(fs::read(unpacked.join("Default/Bookmarks")).unwrap(), b"{}");
        fs::remove_dir_all(unpacked).unwrap();
    }
}

#[tokio::test]
async fn refusal_of_control_is_reported() {
    let directory = TempDir::new().unwrap();
    write_profile(directory.path());
    let created = || (201, json!({}));
    for (created, uploaded, message) in [
        (
            (401, error("unauthorized", "invalid API key")),
            created(),
            "control responded 401 Unauthorized: invalid API key",
        ),
        (
            created(),
            (409, error("profile_in_use", "another save is running")),
            "control responded 409 Conflict: another save is running",
        ),
        (
            created(),
            (502, json!("no error of ours")),
            "control responded 502 Bad Gateway",
        ),
    ] {
        let control = RecordingControl::serve(created, uploaded).await;
        let outcome = control.import(directory.path(), &[]).await;
        assert!(!outcome.succeeded);
        assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains(API_KEY) && outcome.stdout.is_empty());
    }
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let control = RecordingControl {
        url: format!("http://{closed}"),
        requests: Arc::default(),
    };
    let outcome = control.import(directory.path(), &[]).await;
    assert!(
        outcome.stderr.contains("control is unreachable"),
        "{}",
        outcome.stderr
    );
}

#[tokio::test]
async fn profile_in_use_is_imported_only_if_requested() {
    let directory = TempDir::new().unwrap();
    let user_data = directory.path().join("user-data");
    write_profile(&user_data);
    let lock = user_data.join("SingletonLock");
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let output = directory.path().join("out");
    let arguments = [
        user_data.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
    ];
    for (holder, is_running) in [
        (format!("{host}-{}", std::process::id()), true),
        ("another-machine-1".to_owned(), true),
        // No process has this number.
        (format!("{host}-4194999"), false),
    ] {
        symlink(&holder, &lock).unwrap();
        let outcome = import(&arguments).await;
        assert_eq!(
            outcome.succeeded, !is_running,
            "{holder}: {}",
            outcome.stderr
        );
        if is_running {
            let message = format!("a browser is using the profile ({holder})");
            assert!(outcome.stderr.contains(&message), "{}", outcome.stderr);
            let live = import(&[&arguments[..], &["--live"]].concat()).await;
            assert!(live.succeeded, "{}", live.stderr);
        }
        fs::remove_file(&output).unwrap();
        fs::remove_file(&lock).unwrap();
    }
    let outcome = import(&[directory.path().to_str().unwrap(), "--output", "x"]).await;
    let message = "neither a user-data directory nor a profile in one";
    assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    let missing = ["--profile-directory", "Profile 1"];
    let outcome = import(&[&arguments[..], &missing].concat()).await;
    assert!(
        outcome.stderr.contains("has no profile `Profile 1`"),
        "{}",
        outcome.stderr
    );
}
