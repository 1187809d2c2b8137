//! Who may ask, and for which project.

use reqwest::Method;
use serde_json::json;

use crate::support::dev::{Answer, Dev, berth, print};

/// A key bound to a project of its own, and that project.
async fn bound_key(dev: &Dev, project: &str) -> (String, String) {
    let mut command = berth(&[
        "key",
        "create",
        "--name",
        "k",
        "--project",
        project,
        "--state-dir",
    ]);
    command.arg(dev.state_dir());
    let made = print(command).await;
    assert!(made.status.success(), "{}", made.stderr);
    assert!(
        made.stderr.contains(&format!("made the project {project}")),
        "{}",
        made.stderr
    );
    let key = made.stdout.trim().to_owned();
    let context = Answer::of(
        dev.anonymous(Method::GET, "/auth/context")
            .bearer_auth(&key),
    )
    .await;
    (key, context.body["project_id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn nobody_passes_without_a_good_key() {
    let dev = Dev::start().await;
    let routes = [
        (Method::POST, "/browsers"),
        (Method::GET, "/browsers"),
        (Method::GET, "/browsers/x"),
        (Method::PATCH, "/browsers/x"),
        (Method::DELETE, "/browsers/x"),
        (Method::POST, "/org/api_keys"),
        (Method::GET, "/org/api_keys"),
        (Method::GET, "/org/api_keys/x"),
        (Method::DELETE, "/org/api_keys/x"),
        (Method::POST, "/org/api_keys/x/rotate"),
        (Method::GET, "/auth/context"),
        (Method::GET, "/metrics"),
    ];
    let wrong = format!("berth_{}_{}", "0".repeat(12), "0".repeat(64));
    for (method, path) in routes {
        let none = dev.anonymous(method.clone(), path);
        let basic = dev
            .anonymous(method.clone(), path)
            .basic_auth("a", Some("b"));
        let wrong = dev.anonymous(method.clone(), path).bearer_auth(&wrong);
        let jwt = dev.anonymous(method.clone(), &format!("{path}?jwt=x.y.z"));
        for request in [none, basic, wrong, jwt] {
            let answer = Answer::of(request).await;
            answer.assert_error(401, "unauthorized");
            assert_eq!(
                answer.header("www-authenticate"),
                "Bearer",
                "{method} {path}"
            );
        }
    }
    for open in ["/health", "/openapi.json", "/docs/"] {
        let answer = dev.anonymous(Method::GET, open).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{open}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn a_key_speaks_for_its_project() {
    let dev = Dev::start().await;
    let (key, project) = bound_key(&dev, "a project").await;
    let (_, other) = bound_key(&dev, "another").await;
    let default = dev.get("/auth/context").await.body["project_id"].clone();
    assert_ne!(default, project.as_str());

    let ask = |key: &str, header: Option<(&str, &str)>| {
        let request = dev.anonymous(Method::GET, "/auth/context").bearer_auth(key);
        match header {
            Some((name, value)) => Answer::of(request.header(name, value)),
            None => Answer::of(request.header("x-nothing", "")),
        }
    };
    // A bound key needs no header, and may name its own project alone.
    assert_eq!(ask(&key, None).await.body["project_id"], project.as_str());
    assert_eq!(
        ask(&key, None).await.body["api_key"]["project_id"],
        project.as_str()
    );
    let same = ask(&key, Some(("x-project-id", &project))).await;
    assert_eq!(same.body["project_id"], project.as_str());
    for header in ["x-project-id", "x-kernel-project-id"] {
        ask(&key, Some((header, &other)))
            .await
            .assert_error(403, "forbidden");
        // An org-wide key takes any project there is.
        let taken = ask(&dev.api_key, Some((header, &other))).await;
        assert_eq!(taken.body["project_id"], other.as_str());
        let unknown = ask(
            &dev.api_key,
            Some((header, "proj_00000000000000000000000000")),
        )
        .await;
        unknown.assert_error(404, "not_found");
        let malformed = ask(&dev.api_key, Some((header, "other"))).await;
        malformed.assert_error(400, "bad_request");
        assert_eq!(malformed.bad_fields(), [header]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn a_key_from_the_command_line_opens_at_once_and_is_nowhere_in_the_clear() {
    let dev = Dev::start().await;
    let (key, _) = bound_key(&dev, "p").await;
    assert!(key.starts_with("berth_"));
    let secret = key.rsplit('_').next().unwrap();
    let made = dev.post("/org/api_keys", json!({"name": "second"})).await;
    let second = made.body["key"].as_str().unwrap().to_owned();
    assert_eq!(
        Answer::of(dev.anonymous(Method::GET, "/browsers").bearer_auth(&second))
            .await
            .status,
        200
    );
    let log = dev.log();
    let state = dev.finish().await;
    for name in ["berth.db", "berth.db-wal"] {
        let Ok(content) = std::fs::read(state.path().join(name)) else {
            continue;
        };
        for text in [secret, second.rsplit('_').next().unwrap()] {
            assert!(
                !content
                    .windows(text.len())
                    .any(|part| part == text.as_bytes()),
                "{name}"
            );
        }
    }
    assert!(!log.contains(secret) && !log.contains(&second));
}

#[tokio::test]
async fn what_the_command_line_says_wrong_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    for (arguments, told) in [
        (&["--name", "a b"][..], "must have 1 to 255 characters"),
        (&["--name", "a", "--project", "a/b"], "none of them / or %"),
        (
            &["--name", "a", "--expires-in-days", "0"],
            "a whole number from 1 to 3650",
        ),
        (&[], "--name"),
    ] {
        let mut command = berth(&["key", "create", "--state-dir", state]);
        command.args(arguments);
        let printed = print(command).await;
        assert!(!printed.status.success());
        assert!(printed.stderr.contains(told), "{}", printed.stderr);
    }
}
