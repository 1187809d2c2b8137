//! `/metrics`.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::{
    dev::{Answer, Dev, berth},
    printed::print,
};

const TOKEN: &str = "the-token-for-the-metrics";

fn token_file(directory: &tempfile::TempDir, mode: u32) -> PathBuf {
    let file = directory.path().join("metrics-token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    file
}

async fn status(dev: &Dev, path: &str, credential: &str) -> StatusCode {
    let request = dev.anonymous(Method::GET, path).bearer_auth(credential);
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn metrics_need_an_organization_wide_key_or_the_metrics_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = token_file(&directory, 0o600);
    let dev = Dev::with(&["--metrics-token-file", file.to_str().unwrap()]).await;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let bound = json!({"name": "bound", "project_id": project});
    let bound = dev.post("/org/api_keys", bound).await.body;
    let bound = bound["key"].as_str().unwrap();

    let request = dev.anonymous(Method::GET, "/metrics").bearer_auth(bound);
    Answer::of(request).await.assert_error(403, "forbidden");
    assert_eq!(status(&dev, "/browsers", bound).await, StatusCode::OK);
    for credential in [&dev.api_key, TOKEN] {
        assert_eq!(status(&dev, "/metrics", credential).await, StatusCode::OK);
    }
    for path in [
        "/browsers",
        "/browsers/x/json/version",
        "/org/api_keys",
        "/auth/context",
        "/metrics/",
    ] {
        let refused = status(&dev, path, TOKEN).await;
        let expected = match path {
            "/metrics/" => StatusCode::NOT_FOUND,
            _ => StatusCode::UNAUTHORIZED,
        };
        assert_eq!(refused, expected, "{path}");
    }
    for wrong in [&TOKEN[1..], &format!("{TOKEN}x"), "x"] {
        let refused = status(&dev, "/metrics", wrong).await;
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let in_query = format!("/metrics?jwt={TOKEN}");
    let in_query = Answer::of(dev.anonymous(Method::GET, &in_query)).await;
    in_query.assert_error(401, "unauthorized");
    dev.finish().await;
}

#[tokio::test]
async fn metrics_token_that_others_can_read_or_guess_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let check = || berth(&["check", "control"]);
    let mut command = check();
    command.arg("--metrics-token-file");
    let checked = print({
        command.arg(token_file(&directory, 0o644));
        command
    });
    let checked = checked.await;
    assert!(!checked.status.success());
    assert!(checked.stderr.contains("chmod 600"), "{}", checked.stderr);

    for (token, is_valid) in [("short", false), (TOKEN, true)] {
        let mut command = check();
        command.env("BERTH_METRICS_TOKEN", token);
        let checked = print(command).await;
        assert_eq!(checked.status.success(), is_valid, "{}", checked.stderr);
        assert!(!checked.stderr.contains(token), "{}", checked.stderr);
    }
}
