//! `/browsers/{id}/…`: who may use a session's routes, and how far they lead.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::id;
use crate::support::dev::{Answer, Dev, berth, print};

fn token(browser: &Value) -> &str {
    let url = browser["cdp_ws_url"].as_str().unwrap();
    url.split_once("?jwt=").unwrap().1
}

#[tokio::test]
async fn a_session_token_opens_its_own_browser_and_nothing_else() {
    let dev = Dev::start().await;
    let ours = dev.browser(json!({ "name": "ours" })).await;
    let other = dev.browser(json!({})).await;
    let with = |method: Method, path: String, token: &str| {
        Answer::of(dev.anonymous(method, &format!("{path}?jwt={token}")))
    };
    let version = |browser: &Value| format!("/browsers/{}/json/version", id(browser));

    let answer = with(Method::GET, version(&ours), token(&ours)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);

    let forged = format!("{}x", token(&ours));
    for (method, path, token) in [
        (Method::GET, version(&other), token(&ours)),
        (Method::GET, version(&ours), token(&other)),
        (
            Method::GET,
            "/browsers/ours/json/version".to_owned(),
            forged.as_str(),
        ),
        (Method::GET, version(&ours), forged.as_str()),
        (Method::GET, version(&ours), ""),
        (Method::GET, "/browsers".to_owned(), token(&ours)),
        (Method::POST, "/browsers".to_owned(), token(&ours)),
        (
            Method::GET,
            format!("/browsers/{}", id(&ours)),
            token(&ours),
        ),
        (
            Method::DELETE,
            format!("/browsers/{}", id(&ours)),
            token(&ours),
        ),
        (Method::GET, "/org/api_keys".to_owned(), token(&ours)),
        (Method::GET, "/metrics".to_owned(), token(&ours)),
    ] {
        let answer = with(method.clone(), path.clone(), token).await;
        answer.assert_error(401, "unauthorized");
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer",
            "{method} {path}"
        );
    }
    let nobody = Answer::of(dev.anonymous(Method::GET, &version(&ours))).await;
    nobody.assert_error(401, "unauthorized");

    let by_name = dev.get("/browsers/ours/json/version").await;
    assert_eq!(by_name.status, 200, "{}", by_name.body);

    assert_eq!(
        dev.delete(&format!("/browsers/{}", id(&ours))).await.status,
        204
    );
    let ended = with(Method::GET, version(&ours), token(&ours)).await;
    ended.assert_error(404, "not_found");

    let log = dev.log();
    for browser in [&ours, &other] {
        let signature = token(browser).rsplit_once('.').unwrap().1;
        assert!(!log.contains(signature), "a token is in the log");
    }
    dev.finish().await;
}

/// A request whose path is sent as it is written, where a tidy client would resolve it.
async fn as_written(dev: &Dev, path: &str) -> (u16, Value) {
    let host = dev.base_url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        dev.api_key
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {answer}")),
    )
}

#[tokio::test]
async fn the_agents_own_routes_cannot_be_reached() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let base = format!("/browsers/{}", id(&browser));
    for path in [
        "/metrics",
        "/openapi.json",
        "/docs/",
        "/user_data",
        "/health",
        "/chromium",
        "/chromium/restart",
        "/display",
        "/Fs/read_file",
        "/%66s/read_file",
    ] {
        let (status, body) = as_written(&dev, &format!("{base}{path}")).await;
        assert_eq!(
            (status, body["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    for path in [
        "/fs/../metrics",
        "/fs/%2e%2e/metrics",
        "/fs/%2E./metrics",
        "/fs/..%2fmetrics",
        "/fs/..%5cmetrics",
        "//metrics",
        "/json//version",
        "/json/./version",
        "/cdp/..",
        "/fs/x%00y",
        "/fs/x%0d%0ay",
    ] {
        let (status, body) = as_written(&dev, &format!("{base}{path}")).await;
        assert_eq!(
            (status, body["code"].as_str()),
            (400, Some("bad_request")),
            "{path}"
        );
    }
    dev.finish().await;
}

#[tokio::test]
async fn an_unknown_browser_has_no_session_routes() {
    let dev = Dev::start().await;
    for id in ["nobody", "brw_01jd0000000000000000000000"] {
        let answer = dev
            .post(
                &format!("/browsers/{id}/automation/execute"),
                json!({ "code": "" }),
            )
            .await;
        answer.assert_error(404, "not_found");
        let answer = dev.get(&format!("/browsers/{id}/json/version")).await;
        answer.assert_error(404, "not_found");
    }
    dev.finish().await;
}

#[tokio::test]
async fn another_projects_key_does_not_find_the_browser() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({ "name": "ours" })).await;
    let mut command = berth(&[
        "key",
        "create",
        "--name",
        "k",
        "--project",
        "other",
        "--state-dir",
    ]);
    command.arg(dev.state_dir());
    let made = print(command).await;
    assert!(made.status.success(), "{}", made.stderr);
    for id in [id(&browser), "ours"] {
        for path in ["json/version", "cdp", "automation/execute", "fs/read_file"] {
            let request = dev.anonymous(Method::GET, &format!("/browsers/{id}/{path}"));
            let answer = Answer::of(request.bearer_auth(made.stdout.trim())).await;
            answer.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}
