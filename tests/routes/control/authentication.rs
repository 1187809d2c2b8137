//! Authentication, and the project a key gives access to.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev, berth},
    printed::print,
};

/// Creates a project and a key bound to it. Returns the key and the project's id.
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
    command.arg(dev.state_dir()).envs(dev.variables());
    let created = print(command).await;
    assert!(created.status.success(), "{}", created.stderr);
    assert!(
        created
            .stderr
            .contains(&format!("created project {project}")),
        "{}",
        created.stderr
    );
    let key = created.stdout.trim().to_owned();
    let context = Answer::of(
        dev.anonymous(Method::GET, "/auth/context")
            .bearer_auth(&key),
    )
    .await;
    (key, context.body["project_id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn request_without_valid_key_is_401() {
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
        (Method::PATCH, "/org/api_keys/x"),
        (Method::DELETE, "/org/api_keys/x"),
        (Method::POST, "/org/api_keys/x/rotate"),
        (Method::POST, "/org/projects"),
        (Method::GET, "/org/projects"),
        (Method::GET, "/org/projects/x"),
        (Method::PATCH, "/org/projects/x"),
        (Method::DELETE, "/org/projects/x"),
        (Method::POST, "/projects"),
        (Method::GET, "/projects/x"),
        (Method::PATCH, "/projects/x"),
        (Method::DELETE, "/projects/x"),
        (Method::GET, "/projects/x/limits"),
        (Method::GET, "/org/projects/x/limits"),
        (Method::PATCH, "/org/projects/x/limits"),
        (Method::GET, "/org/limits"),
        (Method::PATCH, "/org/limits"),
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
            let response = Answer::of(request).await;
            response.assert_error(401, "unauthorized");
            assert_eq!(
                response.header("www-authenticate"),
                "Bearer",
                "{method} {path}"
            );
        }
    }
    for public in [
        "/",
        "/console/main.js",
        "/health",
        "/openapi.json",
        "/docs/",
    ] {
        let response = dev.anonymous(Method::GET, public).send().await.unwrap();
        assert_eq!(response.status(), 200, "{public}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn key_gives_access_to_its_project_only() {
    let dev = Dev::start().await;
    let (key, project) = bound_key(&dev, "a project").await;
    let (_, other) = bound_key(&dev, "another").await;
    let default = dev.get("/auth/context").await.body["project_id"].clone();
    assert_ne!(default, project.as_str());

    let request_context = |key: &str, header: Option<(&str, &str)>| {
        let request = dev.anonymous(Method::GET, "/auth/context").bearer_auth(key);
        match header {
            Some((name, value)) => Answer::of(request.header(name, value)),
            None => Answer::of(request.header("x-nothing", "")),
        }
    };
    // A bound key needs no header, and accepts only its own project in one.
    assert_eq!(
        request_context(&key, None).await.body["project_id"],
        project.as_str()
    );
    let same = request_context(&key, Some(("x-project-id", &project))).await;
    assert_eq!(same.body["project_id"], project.as_str());
    for header in ["x-project-id", "x-kernel-project-id"] {
        request_context(&key, Some((header, &other)))
            .await
            .assert_error(403, "forbidden");
        // An organization-wide key accepts any existing project.
        let accepted = request_context(&dev.api_key, Some((header, &other))).await;
        assert_eq!(accepted.body["project_id"], other.as_str());
        let unknown = request_context(
            &dev.api_key,
            Some((header, "proj_00000000000000000000000000")),
        )
        .await;
        unknown.assert_error(404, "not_found");
        let malformed = request_context(&dev.api_key, Some((header, "other"))).await;
        malformed.assert_error(400, "bad_request");
        assert_eq!(malformed.bad_fields(), [header]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn context_names_the_key_and_its_scopes() {
    let dev = Dev::start().await;
    let (key, project) = bound_key(&dev, "p").await;
    let keys = dev.get("/org/api_keys").await.body;
    let context = async |key: &str, headers: &[(&str, &str)]| {
        let mut request = dev.anonymous(Method::GET, "/auth/context").bearer_auth(key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request).await.body
    };
    let unselected = context(&dev.api_key, &[]).await;
    let default = &unselected["project_id"];
    let organization = unselected["organization"]["id"].as_str().unwrap();
    assert!(organization.starts_with("org_"), "{organization}");
    let expected = |id: &Value, credential: &Value, effective: &Value, project: &Value| {
        json!({
            "authentication": {"method": "api_key", "source": "api_key", "credential_id": id},
            "authorization": {
                "credential_scope": {"project_id": credential},
                "effective_scope": {"project_id": effective},
            },
            "organization": {"id": organization},
            "principal": {"id": id, "type": "api_key"},
            "project_id": project,
        })
    };
    let (bound, unbound) = (&keys[0]["id"], &keys[1]["id"]);
    let project = &json!(project);
    let null = &Value::Null;
    assert_eq!(unselected, expected(unbound, null, null, default));
    for header in [
        ("x-project-id", project.as_str().unwrap()),
        ("x-kernel-project", "p"),
    ] {
        let selected = context(&dev.api_key, &[header]).await;
        assert_eq!(selected, expected(unbound, null, project, project));
    }
    let by_bound = context(&key, &[]).await;
    assert_eq!(by_bound, expected(bound, project, project, project));

    let state = dev.finish().await;
    let dev = Dev::start_in(state, &[]).await;
    let after_restart = dev.get("/auth/context").await.body;
    assert_eq!(after_restart["organization"]["id"], organization);
    dev.finish().await;
}

const NAME: &str = "x-kernel-project";
const IDS: [&str; 2] = ["x-project-id", "x-kernel-project-id"];

#[tokio::test]
async fn project_is_selected_by_name_and_headers_must_not_contradict() {
    let dev = Dev::start().await;
    let (key, project) = bound_key(&dev, "a project").await;
    let (_, other) = bound_key(&dev, "another").await;
    let select = |key: &str, headers: &[(&'static str, &str)]| {
        let request = dev.anonymous(Method::GET, "/auth/context").bearer_auth(key);
        let add = |request: reqwest::RequestBuilder, (name, value): &(&'static str, &str)| {
            request.header(*name, *value)
        };
        Answer::of(headers.iter().fold(request, add))
    };
    let (project, other) = (project.as_str(), other.as_str());
    for key in [&key, &dev.api_key] {
        let agreeing = [(NAME, "a project"), (IDS[0], project), (IDS[1], project)];
        for headers in [&agreeing[..1], &agreeing[..]] {
            let context = select(key, headers).await;
            assert_eq!(context.body["project_id"], project);
        }
        let contradicting = select(key, &[(IDS[0], project), (IDS[1], other)]).await;
        contradicting.assert_error(400, "bad_request");
        let repeated = select(key, &[(IDS[0], project), (IDS[0], other)]).await;
        repeated.assert_error(400, "bad_request");
        let malformed = select(key, &[(NAME, "a/b")]).await;
        malformed.assert_error(400, "bad_request");
        assert_eq!(malformed.bad_fields(), [NAME]);
    }
    for name in ["another", "missing"] {
        let foreign = select(&key, &[(NAME, name)]).await;
        foreign.assert_error(403, "forbidden");
    }
    let missing = select(&dev.api_key, &[(NAME, "missing")]).await;
    missing.assert_error(404, "not_found");
    let contradicting = select(&dev.api_key, &[(NAME, "another"), (IDS[0], project)]).await;
    contradicting.assert_error(400, "bad_request");
    dev.finish().await;
}

#[tokio::test]
async fn key_from_command_line_works_at_once_and_is_stored_hashed() {
    let dev = Dev::start().await;
    let (key, _) = bound_key(&dev, "p").await;
    assert!(key.starts_with("berth_"));
    let secret = key.rsplit('_').next().unwrap();
    let created = dev.post("/org/api_keys", json!({"name": "second"})).await;
    let second = created.body["key"].as_str().unwrap().to_owned();
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
async fn invalid_key_command_reports_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().to_str().unwrap();
    for (arguments, message) in [
        (&["--name", "a\nb"][..], "must have 1 to 255 characters"),
        (
            &["--name", "a", "--project", "a/b"],
            "none of them /, % or a control character",
        ),
        (
            &[
                "--name",
                "a",
                "--project",
                "proj_00000000000000000000000000",
            ],
            "must not have the form of a project id",
        ),
        (
            &["--name", "a", "--expires-in-days", "0"],
            "a whole number from 1 to 3650",
        ),
        (&[], "--name"),
    ] {
        let mut command = berth(&["key", "create", "--state-dir", state]);
        command.args(arguments);
        let output = print(command).await;
        assert!(!output.status.success());
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
}
