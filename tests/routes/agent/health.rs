//! `GET /health`

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::agent::Start;

#[tokio::test]
async fn health_reports_state_before_and_after_chromium_starts() {
    let agent = Start::on_screen().listening().await;
    let open = agent.http.get(agent.url("/health"));
    let health = agent.ok(open).await;
    assert_eq!(health["status"], "ok");
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert!(health["uptime_seconds"].is_u64());
    agent.ready().await;
    let health = agent.ok(agent.http.get(agent.url("/health"))).await;
    assert_eq!(health["chromium"]["state"], "running");
    assert_eq!(health["display"]["state"], "up");
    assert!(health["problems"].is_array(), "{health}");
    assert_eq!(
        health["display"]["viewport"],
        json!({"width": 1920, "height": 1080, "refresh_rate": 25})
    );
    agent.stop().await;
}

#[tokio::test]
async fn all_other_routes_require_the_token() {
    let agent = Start::headless().listening().await;
    for path in [
        "/chromium",
        "/cdp",
        "/json/version",
        "/json/list",
        "/json",
        "/metrics",
        "/devtools/page/1",
    ] {
        for request in [
            agent.http.get(agent.url(path)),
            agent.http.get(agent.url(path)).bearer_auth("wrong"),
        ] {
            let (status, body) = agent.answer(request).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}: {body}");
            assert_eq!(body["code"], "unauthorized", "{path}");
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn agent_without_token_rejects_web_pages() {
    let agent = Start::headless().without_token().listening().await;
    let own = agent.base_url.as_str();
    let port = own.rsplit(':').next().unwrap();
    let get = |path: &str| agent.http.get(agent.url(path));
    // Requests of programs, and of pages that the agent serves.
    agent.ok(get("/chromium")).await;
    agent.ok(get("/chromium").header("origin", own)).await;
    let by_name = format!("localhost:{port}");
    agent.ok(get("/chromium").header("host", by_name)).await;
    let rebound = format!("rebound.example:{port}");
    for (name, value) in [
        ("host", rebound.as_str()),
        ("origin", "https://page.example"),
        ("origin", "http://localhost:3000"),
        ("origin", "null"),
    ] {
        let upgrade = get("/cdp")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let execute = agent.http.post(agent.url("/automation/execute"));
        for request in [get("/chromium"), upgrade, execute.json(&json!({}))] {
            let (status, body) = agent.answer(request.header(name, value)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{value}: {body}");
            assert_eq!(body["code"], "forbidden");
        }
    }
    // Without a CORS preflight, a page can send only bodies of no type or of a text type.
    let untyped = agent.http.post(agent.url("/automation/execute"));
    let untyped = untyped.body(json!({"code": "return 1"}).to_string());
    let (status, body) = agent.answer(untyped).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{body}");
    agent.stop().await;
}

#[tokio::test]
async fn agent_serves_more_clients_than_the_soft_limit_of_open_files() {
    const LIMIT: u32 = 64;
    let agent = Start::without_browser()
        .with_soft_limit_of_open_files(LIMIT)
        .listening()
        .await;
    let addr = agent.base_url.strip_prefix("http://").unwrap();
    let idle = join_all((0..2 * LIMIT).map(|_| TcpStream::connect(addr))).await;
    let idle: Vec<_> = idle.into_iter().map(Result::unwrap).collect();
    agent.ok(agent.get("/health")).await;
    drop(idle);
    agent.stop().await;
}
