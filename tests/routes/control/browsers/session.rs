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

#[tokio::test]
async fn the_live_views_tokens_open_the_live_view_and_nothing_else() {
    let dev = Dev::start().await;
    let made = dev.post("/browsers", json!({ "name": "ours" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let ours = made.body;
    let other = dev.browser(json!({})).await;
    let link = |field: &str| {
        let url = ours[field].as_str().unwrap();
        url.split_once("?jwt=").unwrap().1
    };
    let (live, view) = (
        link("browser_live_view_url"),
        link("browser_live_view_read_only_url"),
    );
    let asked = async |method: &Method, path: &str, token: &str| {
        let request = dev.anonymous(method.clone(), &format!("{path}?jwt={token}"));
        request.send().await.unwrap()
    };
    let base = format!("/browsers/{}", id(&ours));
    let foreign = format!("/browsers/{}", id(&other));
    for (path, opened) in [
        ("/live", &[live][..]),
        ("/live/socket", &[live]),
        ("/live/view", &[live, view]),
        ("/live/view/socket", &[live, view]),
        ("/live/viewer", &[live]),
        ("/live/view%2fsocket", &[live]),
        ("", &[]),
        ("/cdp", &[]),
        ("/json/version", &[]),
        ("/replays", &[]),
        ("/fs/list_files", &[]),
        ("/automation/execute", &[]),
        ("/lively", &[]),
    ] {
        for token in [live, view] {
            let answer = asked(&Method::GET, &format!("{base}{path}"), token).await;
            let refused = answer.status() == 401;
            assert_eq!(refused, !opened.contains(&token), "{path}: {answer:?}");
            assert_eq!(
                answer.headers().contains_key("referrer-policy"),
                !refused,
                "{path}"
            );
            let elsewhere = asked(&Method::GET, &format!("{foreign}{path}"), token).await;
            assert_eq!(elsewhere.status(), 401, "{path}");
        }
    }
    for (path, token) in [
        ("/live/../fs/list_files", live),
        ("/live/view/%2e%2e/%2e%2e/fs/list_files", view),
        ("/live/view/../socket", view),
    ] {
        let (status, _) = sent(&dev, &format!("{base}{path}?jwt={token}"), "").await;
        assert_eq!(status, 400, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/live"),
        (Method::DELETE, "/live/view"),
        (Method::DELETE, ""),
    ] {
        let answer = asked(&method, &format!("{base}{path}"), live).await;
        assert_eq!(answer.status(), 401, "{method} {path}");
    }
    for path in [
        "/browsers",
        "/browsers/ours/live",
        "/org/api_keys",
        "/metrics",
    ] {
        assert_eq!(
            asked(&Method::GET, path, live).await.status(),
            401,
            "{path}"
        );
    }

    assert_eq!(dev.delete(&base).await.status, 204);
    let ended = asked(&Method::GET, &format!("{base}/live"), live).await;
    assert_eq!(ended.status(), 404);
    let record = dev.get(&format!("{base}?status=deleted")).await.body;
    for field in ["browser_live_view_url", "browser_live_view_read_only_url"] {
        assert_eq!(record.get(field), None);
    }
    let log = dev.log();
    for token in [live, view] {
        let signature = token.rsplit_once('.').unwrap().1;
        assert!(!log.contains(signature), "a token is in the log");
    }
    dev.finish().await;
}

/// A request whose path is sent as it is written, where a tidy client would resolve it.
async fn as_written(dev: &Dev, path: &str) -> (u16, Value) {
    let key = format!("Authorization: Bearer {}\r\n", dev.api_key);
    sent(dev, path, &key).await
}

async fn sent(dev: &Dev, path: &str, header: &str) -> (u16, Value) {
    let host = dev.base_url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
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
