//! `GET /health`

use reqwest::StatusCode;
use serde_json::json;

use crate::support::agent::Start;

#[tokio::test]
async fn tells_what_is_up_before_chromium_is_and_after() {
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
    assert_eq!(
        health["display"]["viewport"],
        json!({"width": 1920, "height": 1080, "refresh_rate": 25})
    );
    agent.stop().await;
}

#[tokio::test]
async fn everything_else_takes_the_token() {
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
