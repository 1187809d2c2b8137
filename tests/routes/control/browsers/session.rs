//! `/browsers/{id}/…`: access to the routes of a session, and the limits of their paths.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::id;
use crate::support::{
    dev::{Answer, Dev, berth},
    printed::print,
};

fn token(browser: &Value) -> &str {
    let url = browser["cdp_ws_url"].as_str().unwrap();
    url.split_once("?jwt=").unwrap().1
}

#[tokio::test]
async fn session_token_gives_access_to_its_browser_only() {
    let dev = Dev::start().await;
    let own = dev.browser(json!({ "name": "ours" })).await;
    let other = dev.browser(json!({})).await;
    let with = |method: Method, path: String, token: &str| {
        Answer::of(dev.anonymous(method, &format!("{path}?jwt={token}")))
    };
    let version = |browser: &Value| format!("/browsers/{}/json/version", id(browser));

    let response = with(Method::GET, version(&own), token(&own)).await;
    assert_eq!(response.status, 200, "{}", response.body);

    let forged = format!("{}x", token(&own));
    for (method, path, token) in [
        (Method::GET, version(&other), token(&own)),
        (Method::GET, version(&own), token(&other)),
        (
            Method::GET,
            "/browsers/ours/json/version".to_owned(),
            forged.as_str(),
        ),
        (Method::GET, version(&own), forged.as_str()),
        (Method::GET, version(&own), ""),
        (Method::GET, "/browsers".to_owned(), token(&own)),
        (Method::POST, "/browsers".to_owned(), token(&own)),
        (Method::GET, format!("/browsers/{}", id(&own)), token(&own)),
        (
            Method::DELETE,
            format!("/browsers/{}", id(&own)),
            token(&own),
        ),
        (Method::GET, "/org/api_keys".to_owned(), token(&own)),
        (Method::GET, "/metrics".to_owned(), token(&own)),
    ] {
        let response = with(method.clone(), path.clone(), token).await;
        response.assert_error(401, "unauthorized");
        assert_eq!(
            response.header("www-authenticate"),
            "Bearer",
            "{method} {path}"
        );
    }
    let anonymous = Answer::of(dev.anonymous(Method::GET, &version(&own))).await;
    anonymous.assert_error(401, "unauthorized");

    let by_name = dev.get("/browsers/ours/json/version").await;
    assert_eq!(by_name.status, 200, "{}", by_name.body);

    assert_eq!(
        dev.delete(&format!("/browsers/{}", id(&own))).await.status,
        204
    );
    let ended = with(Method::GET, version(&own), token(&own)).await;
    ended.assert_error(410, "session_ended");
    assert_eq!(ended.header("referrer-policy"), "no-referrer");

    let log = dev.log();
    for browser in [&own, &other] {
        let signature = token(browser).rsplit_once('.').unwrap().1;
        assert!(!log.contains(signature), "a token is in the log");
    }
    dev.finish().await;
}

#[tokio::test]
async fn live_view_tokens_give_access_to_live_view_only() {
    let dev = Dev::start().await;
    let created = dev.post("/browsers", json!({ "name": "ours" })).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let own = created.body;
    let other = dev.browser(json!({})).await;
    let link = |field: &str| {
        let url = own[field].as_str().unwrap();
        url.split_once("?jwt=").unwrap().1
    };
    let (live, view) = (
        link("browser_live_view_url"),
        link("browser_live_view_read_only_url"),
    );
    let send = async |method: &Method, path: &str, token: &str| {
        let request = dev.anonymous(method.clone(), &format!("{path}?jwt={token}"));
        request.send().await.unwrap()
    };
    let base = format!("/browsers/{}", id(&own));
    let foreign = format!("/browsers/{}", id(&other));
    for (path, accepted) in [
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
            let response = send(&Method::GET, &format!("{base}{path}"), token).await;
            let refused = response.status() == 401;
            assert_eq!(refused, !accepted.contains(&token), "{path}: {response:?}");
            assert_eq!(
                response.headers()["referrer-policy"],
                "no-referrer",
                "{path}"
            );
            let elsewhere = send(&Method::GET, &format!("{foreign}{path}"), token).await;
            assert_eq!(elsewhere.status(), 401, "{path}");
        }
    }
    for (path, token) in [
        ("/live/../fs/list_files", live),
        ("/live/view/%2e%2e/%2e%2e/fs/list_files", view),
        ("/live/view/../socket", view),
    ] {
        let (status, _) = send_unresolved(&dev, &format!("{base}{path}?jwt={token}"), "").await;
        assert_eq!(status, 400, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/live"),
        (Method::DELETE, "/live/view"),
        (Method::DELETE, ""),
    ] {
        let response = send(&method, &format!("{base}{path}"), live).await;
        assert_eq!(response.status(), 401, "{method} {path}");
    }
    for path in [
        "/browsers",
        "/browsers/ours/live",
        "/org/api_keys",
        "/metrics",
    ] {
        assert_eq!(send(&Method::GET, path, live).await.status(), 401, "{path}");
    }

    assert_eq!(dev.delete(&base).await.status, 204);
    let ended = send(&Method::GET, &format!("{base}/live"), live).await;
    assert_eq!(ended.status(), 410);
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

/// Sends a GET request with a path that an HTTP client would normalize, with the key.
async fn get_unresolved(dev: &Dev, path: &str) -> (u16, Value) {
    let key = format!("Authorization: Bearer {}\r\n", dev.api_key);
    send_unresolved(dev, path, &key).await
}

/// Sends a GET request without normalizing its path.
async fn send_unresolved(dev: &Dev, path: &str, header: &str) -> (u16, Value) {
    let host = dev.base_url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {response}")),
    )
}

#[tokio::test]
async fn internal_routes_of_agent_are_unreachable() {
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
        "/session",
        "/sessions",
        "/sessions/1/replays",
        "/Fs/read_file",
        "/%66s/read_file",
    ] {
        let (status, body) = get_unresolved(&dev, &format!("{base}{path}")).await;
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
        let (status, body) = get_unresolved(&dev, &format!("{base}{path}")).await;
        assert_eq!(
            (status, body["code"].as_str()),
            (400, Some("bad_request")),
            "{path}"
        );
    }
    dev.finish().await;
}

#[tokio::test]
async fn unsupported_method_of_a_session_route_is_405_with_the_supported_ones() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    for (method, path, allowed) in [
        ("TRACE", "computer/click_mouse", "POST"),
        ("OPTIONS", "computer/click_mouse", "POST"),
        ("TRACE", "fs/read_file", "GET,HEAD"),
    ] {
        let path = format!("/browsers/{}/{path}", id(&browser));
        let answer = Answer::of(dev.request(method.parse().unwrap(), &path)).await;
        answer.assert_error(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), allowed, "{method} {path}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn session_routes_of_unknown_browser_are_404() {
    let dev = Dev::start().await;
    for id in ["unknown", "brw_01jd0000000000000000000000"] {
        let response = dev
            .post(
                &format!("/browsers/{id}/automation/execute"),
                json!({ "code": "" }),
            )
            .await;
        response.assert_error(404, "not_found");
        let response = dev.get(&format!("/browsers/{id}/json/version")).await;
        response.assert_error(404, "not_found");
    }
    dev.finish().await;
}

#[tokio::test]
async fn session_routes_are_404_for_key_of_another_project() {
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
    command.arg(dev.state_dir()).envs(dev.variables());
    let created = print(command).await;
    assert!(created.status.success(), "{}", created.stderr);
    for id in [id(&browser), "ours"] {
        for path in ["json/version", "cdp", "automation/execute", "fs/read_file"] {
            let request = dev.anonymous(Method::GET, &format!("/browsers/{id}/{path}"));
            let response = Answer::of(request.bearer_auth(created.stdout.trim())).await;
            response.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}
