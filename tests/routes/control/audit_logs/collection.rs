//! `/audit-logs`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{WINDOW, assert_access, assert_invalid_parameters, await_entries, entries};
use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} of {entry}"))
}

#[tokio::test]
async fn change_is_recorded_with_its_caller_and_result() {
    let dev = Dev::start().await;
    let request = dev.request(Method::POST, "/org/api_keys?note=x");
    let request = request.header("X-Request-Id", "audited-1");
    let request = request
        .header("User-Agent", "test/1")
        .json(&json!({"name": "ci"}));
    let created = Answer::of(request.header("X-Forwarded-For", "198.51.100.7")).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let entry = await_entries(&dev, "&search=audited-1", 1).await.remove(0);
    let context = dev.get("/auth/context").await.body;
    let key = text(&context["authentication"], "credential_id");
    for (field, expected) in [
        ("method", "POST"),
        ("path", "/org/api_keys"),
        ("route", "/org/api_keys"),
        ("client_ip", "127.0.0.1"),
        ("user_agent", "test/1"),
        ("domain", "127.0.0.1"),
        ("auth_strategy", "api_key"),
        ("user_id", key),
        ("email", ""),
        ("request_id", "audited-1"),
        ("action", "create_api_key"),
        (
            "resource",
            &format!("org/api_keys/{}", text(&created.body, "id")),
        ),
        ("project_id", text(&context, "project_id")),
        ("api_key_id", key),
    ] {
        assert_eq!(text(&entry, field), expected, "{field}");
    }
    assert_eq!(entry["status"], 201);
    assert!(entry["duration_ms"].is_u64());
    assert!(text(&entry, "timestamp").ends_with('Z'));

    let path = format!("/org/api_keys/{}", text(&created.body, "id"));
    dev.post(&format!("{path}/rotate"), json!({})).await;
    dev.delete(&path).await;
    dev.delete(&path).await.assert_error(404, "not_found");
    let filter = format!("&search={}", path.trim_start_matches('/'));
    let found = await_entries(&dev, &filter, 4).await;
    let summary: Vec<_> = found
        .iter()
        .map(|entry| (text(entry, "action"), entry["status"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("delete_api_key", 404),
        ("delete_api_key", 204),
        ("rotate_api_key", 201),
        ("create_api_key", 201),
    ];
    assert_eq!(summary, expected);
    dev.finish().await;
}

#[tokio::test]
async fn failed_authentication_is_recorded_and_successful_read_is_not() {
    let dev = Dev::start().await;
    let wrong = format!("berth_{}_{}", "0".repeat(12), "0".repeat(64));
    for request in [
        dev.anonymous(Method::GET, "/browsers"),
        dev.anonymous(Method::GET, "/browsers/x/cdp?jwt=x.y.z"),
        dev.anonymous(Method::DELETE, "/browsers/x")
            .bearer_auth(wrong),
        dev.anonymous(Method::GET, "/metrics"),
    ] {
        Answer::of(request).await.assert_error(401, "unauthorized");
    }
    let bound = super::bound_key(&dev).await;
    for path in ["/browsers", "/auth/context", "/org/api_keys"] {
        assert_eq!(dev.get(path).await.status, StatusCode::OK);
    }
    let request = dev.anonymous(Method::GET, "/metrics").bearer_auth(bound);
    Answer::of(request).await.assert_error(403, "forbidden");
    let failed = |entry: &Value| ["401", "403"].contains(&&*entry["status"].to_string());
    let found = until("the failed requests", async || {
        let mut found = entries(&dev, "").await;
        found.retain(failed);
        (found.len() == 5).then_some(found)
    })
    .await;
    let summary: Vec<_> = found
        .iter()
        .map(|entry| {
            assert_eq!(text(entry, "user_id"), "");
            assert_eq!(entry.get("api_key_id"), None);
            let fields = ["method", "route", "auth_strategy", "action"];
            fields.map(|field| text(entry, field))
        })
        .collect();
    let expected = [
        ["GET", "/metrics", "api_key", "unknown"],
        ["GET", "/metrics", "none", "unknown"],
        ["DELETE", "/browsers/{id}", "api_key", "delete_browser"],
        [
            "GET",
            "/browsers/{id}/cdp",
            "session_token",
            "connect_devtools",
        ],
        ["GET", "/browsers", "none", "list_browsers"],
    ];
    assert_eq!(summary, expected);
    let others = entries(&dev, "")
        .await
        .into_iter()
        .filter(|entry| !failed(entry));
    let others: Vec<_> = others
        .map(|entry| text(&entry, "action").to_owned())
        .collect();
    assert_eq!(others, ["create_api_key"]);
    dev.finish().await;
}

#[tokio::test]
async fn session_route_is_recorded_with_the_browser_of_its_token_and_input_is_not() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"timeout_seconds": 600})).await;
    let id = text(&browser, "session_id");
    let (_, token) = text(&browser, "cdp_ws_url").split_once("jwt=").unwrap();
    let route = |route: &str| format!("/browsers/{id}/{route}?jwt={token}");
    let spawn = json!({"command": "true"});
    for (path, body) in [
        ("computer/move_mouse", json!({"x": 1, "y": 1})),
        ("process/exec", spawn.clone()),
        ("computer/scroll", json!({"x": 1, "y": 1, "delta_y": 1})),
    ] {
        let request = dev.anonymous(Method::POST, &route(path)).json(&body);
        assert_eq!(Answer::of(request).await.status, StatusCode::OK, "{path}");
    }
    // Not a WebSocket handshake, but an attempt at one.
    let request = dev.anonymous(Method::GET, &route("cdp"));
    Answer::of(request).await.assert_error(400, "bad_request");
    let found = await_entries(&dev, &format!("&search={id}"), 3).await;
    let resource = format!("browsers/{id}");
    let actions: Vec<_> = found.iter().map(|entry| text(entry, "action")).collect();
    assert_eq!(
        actions,
        ["connect_devtools", "exec_process", "create_browser"]
    );
    for entry in &found[..2] {
        assert_eq!(text(entry, "resource"), resource);
        assert_eq!(text(entry, "auth_strategy"), "session_token");
        assert_eq!(text(entry, "user_id"), id);
        assert_eq!(entry["api_key_id"], found[2]["api_key_id"]);
    }
    assert_eq!(text(&found[1], "route"), "/browsers/{id}/process/exec");
    assert_eq!(text(&found[2], "resource"), resource);
    let path = format!("/{resource}/profiles");
    let saved = dev.post(&path, json!({"name": "saved"})).await;
    assert_eq!(saved.status, StatusCode::CREATED, "{}", saved.body);
    let found = await_entries(&dev, &format!("&search={id}"), 4).await;
    let profile = text(&found[0], "resource").strip_prefix(&format!("{resource}/profiles/"));
    assert!(
        profile.is_some_and(|id| id.starts_with("prof_")),
        "{found:?}"
    );
    dev.finish().await;
}

#[tokio::test]
async fn client_behind_a_trusted_proxy_is_recorded() {
    let dev = Dev::with(&["--trusted-proxies", "127.0.0.0/8,10.0.0.1"]).await;
    let request = dev
        .request(Method::POST, "/org/api_keys")
        .json(&json!({"name": "n"}));
    let forwarded = "203.0.113.9, 198.51.100.7";
    let request = request.header("X-Forwarded-For", forwarded);
    let request = request.header("X-Forwarded-For", "10.0.0.1");
    assert_eq!(Answer::of(request).await.status, StatusCode::CREATED);
    let found = await_entries(&dev, "&search=create_api_key", 1).await;
    assert_eq!(text(&found[0], "client_ip"), "198.51.100.7");
    dev.finish().await;
}

#[tokio::test]
async fn pages_of_the_log_continue_with_their_token() {
    let dev = Dev::start().await;
    for number in 0..5 {
        dev.post("/org/api_keys", json!({"name": format!("n{number}")}))
            .await;
    }
    let expected = await_entries(&dev, "&method=POST", 5).await;
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/audit-logs?{WINDOW}&method=POST&limit=2{token}");
        let page = dev.get(&path).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        let entries = page.body.as_array().unwrap();
        assert!(entries.len() <= 2);
        listed.extend(entries.iter().cloned());
        let next = page.header("x-next-page-token");
        assert_eq!(
            page.header("x-has-more"),
            if next.is_empty() { "false" } else { "true" }
        );
        if next.is_empty() {
            break;
        }
        token = format!("&page_token={next}");
    }
    assert_eq!(listed, expected);
    let none = dev.get("/audit-logs?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z");
    let none = none.await;
    assert_eq!(
        (none.body.clone(), none.header("x-has-more")),
        (json!([]), "false")
    );
    dev.finish().await;
}

#[tokio::test]
async fn search_requires_an_organization_wide_key_and_valid_parameters() {
    let dev = Dev::start().await;
    assert_access(&dev, &format!("/audit-logs?{WINDOW}")).await;
    assert_invalid_parameters(&dev, "/audit-logs").await;
    for query in [
        "limit=101",
        "page_token=x",
        "page_token=1.log_x",
        "page_token=",
    ] {
        let refused = dev.get(&format!("/audit-logs?{WINDOW}&{query}")).await;
        refused.assert_error(400, "bad_request");
        let (field, _) = query.split_once('=').unwrap();
        assert_eq!(refused.bad_fields(), [field]);
    }
    let refused = dev.post("/audit-logs", json!({})).await;
    refused.assert_error(405, "method_not_allowed");
    dev.finish().await;
}

#[tokio::test]
async fn records_survive_shutdown_and_failing_database() {
    let dev = Dev::start().await;
    dev.refuse_change("INSERT ON audit_logs", "1 = 1").await;
    assert_eq!(
        dev.post("/org/api_keys", json!({"name": "a"})).await.status,
        StatusCode::CREATED
    );
    until("a failed attempt", async || {
        dev.log()
            .contains("cannot store audit records")
            .then_some(())
    })
    .await;
    dev.allow().await;
    await_entries(&dev, "&method=POST", 1).await;
    // The last record is still queued when the shutdown begins.
    assert_eq!(
        dev.post("/org/api_keys", json!({"name": "b"})).await.status,
        StatusCode::CREATED
    );
    let state = dev.finish().await;
    let dev = Dev::start_in(state, &[]).await;
    assert_eq!(entries(&dev, "&method=POST").await.len(), 2);
    dev.finish().await;
}

#[tokio::test]
async fn crash_loses_no_record_that_was_listed() {
    let dev = Dev::start().await;
    for number in 0..10 {
        dev.post("/org/api_keys", json!({"name": format!("n{number}")}))
            .await;
    }
    let stored = await_entries(&dev, "&method=POST", 10).await;
    dev.post("/org/api_keys", json!({"name": "last"})).await;
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &[]).await;
    let found = entries(&dev, "&method=POST").await;
    assert!(found.ends_with(&stored) && found.len() <= 11, "{found:?}");
    dev.finish().await;
}

#[tokio::test]
async fn request_whose_client_disconnects_is_recorded() {
    use tokio::io::AsyncWriteExt;

    let dev = Dev::start().await;
    let address = dev.base_url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /org/api_keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        dev.api_key
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    drop(connection);
    let found = await_entries(&dev, "&method=POST", 1).await;
    assert!(
        [400, 499].contains(&found[0]["status"].as_u64().unwrap()),
        "{found:?}"
    );
    dev.finish().await;
}
