//! The limits of each API key: requests per second, and open streams.

use std::collections::BTreeSet;

use futures::future::join_all;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    wait::{in_time, until},
};

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// Creates another key that is valid for all projects.
async fn another_key(dev: &Dev) -> String {
    let created = dev.post("/org/api_keys", json!({"name": "another"})).await;
    text(&created.body, "key").to_owned()
}

/// Sends requests until one is refused. Returns its response.
async fn exceed(send: impl AsyncFn() -> Answer) -> Answer {
    for _ in 0..1000 {
        let response = send().await;
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            return response;
        }
        assert!(response.status.is_success(), "{}", response.body);
    }
    panic!("no request was refused");
}

#[tokio::test]
async fn requests_beyond_the_rate_of_a_key_are_429() {
    let dev = Dev::with(&["--requests-per-second", "10"]).await;
    let another = another_key(&dev).await;
    let browser = dev.browser(json!({})).await;
    let id = text(&browser, "session_id");
    let (_, token) = text(&browser, "cdp_ws_url").split_once("jwt=").unwrap();
    // The token counts for the key that it was issued for.
    let path = format!("/browsers/{id}/json/version?jwt={token}");
    let refused = exceed(async || Answer::of(dev.anonymous(Method::GET, &path)).await).await;
    refused.assert_error(429, "limit_exceeded");
    assert_eq!(refused.header("retry-after"), "1");
    let message = text(&refused.body, "message");
    assert!(message.contains("10 per second"), "{message}");
    let create = || dev.post("/org/api_keys", json!({"name": "n"}));
    exceed(async || create().await).await;

    let request = |path: &str| dev.anonymous(Method::GET, path).bearer_auth(&another);
    let listed = Answer::of(request("/org/api_keys?limit=100")).await;
    assert_eq!(listed.status, StatusCode::OK);
    let health = Answer::of(dev.anonymous(Method::GET, "/health")).await;
    assert_eq!(health.status, StatusCode::OK);
    let metrics = request("/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let counted = "berth_limit_refusals_total{limit=\"requests\"} ";
    assert!(metrics.contains(counted), "{metrics}");

    // The refused requests are not in the audit log: a caller beyond its limit must not fill it.
    let names = listed.body.as_array().unwrap().iter();
    let created = names.filter(|key| key["name"] == "n").count();
    let window = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
    let search = format!("/audit-logs?{window}&limit=100&method=POST");
    let statuses = until("the records", async || {
        let found = Answer::of(request(&search)).await.body;
        let statuses: Vec<u64> = found
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["status"].as_u64().unwrap())
            .collect();
        // Besides, a browser and the other key were created.
        (statuses.len() >= created + 2).then_some(statuses)
    })
    .await;
    assert_eq!(BTreeSet::from_iter(statuses), BTreeSet::from([201]));
    dev.finish().await;
}

/// A browser, whose streams tests open.
struct Streams {
    dev: Dev,
    id: String,
    token: String,
}

impl Streams {
    async fn start(limit: &str) -> Streams {
        let dev = Dev::with(&["--max-streams", limit]).await;
        let browser = dev.browser(json!({"timeout_seconds": 600})).await;
        let (_, token) = text(&browser, "cdp_ws_url").split_once("jwt=").unwrap();
        Streams {
            id: text(&browser, "session_id").to_owned(),
            token: token.to_owned(),
            dev,
        }
    }

    /// Returns a request for an event stream that does not end.
    fn events(&self) -> RequestBuilder {
        let query = "source=supervisor&supervisor_process=agent&follow=true";
        let path = format!("/browsers/{}/logs/stream?{query}", self.id);
        self.dev.request(Method::GET, &path)
    }

    /// Returns a handshake for DevTools with the browser's token.
    fn devtools(&self) -> RequestBuilder {
        self.handshake("cdp")
    }

    fn handshake(&self, route: &str) -> RequestBuilder {
        let path = format!("/browsers/{}/{route}?jwt={}", self.id, self.token);
        let request = self.dev.anonymous(Method::GET, &path);
        request
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    }

    /// Asserts that both kinds of streams are refused.
    async fn assert_full(&self) {
        for request in [self.events(), self.devtools()] {
            let refused = in_time("a response", Answer::of(request)).await;
            refused.assert_error(429, "limit_exceeded");
            assert_eq!(refused.header("retry-after"), "5");
        }
    }
}

/// Opens a stream. Returns `None` if it is refused because of the limit.
async fn open(request: RequestBuilder) -> Option<Response> {
    let response = in_time("a response", request.send()).await.unwrap();
    match response.status() {
        StatusCode::OK | StatusCode::SWITCHING_PROTOCOLS => Some(response),
        StatusCode::TOO_MANY_REQUESTS => None,
        other => panic!("{other}"),
    }
}

/// Waits until the server has no open stream.
async fn await_no_stream(dev: &Dev) {
    until("the end of all streams", async || {
        let metrics = dev.request(Method::GET, "/metrics").send().await;
        let metrics = metrics.unwrap().text().await.unwrap();
        metrics.contains("berth_streams_open 0\n").then_some(())
    })
    .await;
}

/// Opens a stream as soon as there is room for it.
async fn await_room(request: impl Fn() -> RequestBuilder) -> Response {
    until("room for a stream", async || open(request()).await).await
}

#[tokio::test]
async fn streams_of_a_key_are_limited_and_released_with_every_kind_of_end() {
    let streams = Streams::start("2").await;
    let dev = &streams.dev;
    let another = another_key(dev).await;
    let events = open(streams.events()).await.unwrap();
    let devtools = open(streams.devtools()).await.unwrap();
    streams.assert_full().await;
    // Requests that are no streams, and other keys, are not affected.
    let version = format!("/browsers/{}/json/version", streams.id);
    assert_eq!(dev.get(&version).await.status, StatusCode::OK);
    let url = streams.events().build().unwrap().url().clone();
    let of_another = open(dev.http.get(url.clone()).bearer_auth(&another))
        .await
        .unwrap();

    // The client of an event stream disconnects.
    drop(events);
    let second = await_room(|| streams.devtools()).await;
    streams.assert_full().await;
    // The client of a WebSocket disconnects.
    drop(devtools);
    let events = await_room(|| streams.events()).await;
    streams.assert_full().await;
    // An event stream ends on its own.
    drop(second);
    let url = url.as_str().replace("follow=true", "follow=false");
    let finite = await_room(|| dev.http.get(&url).bearer_auth(&dev.api_key)).await;
    in_time("the end of the stream", finite.text())
        .await
        .unwrap();
    // A handshake fails.
    let handshake = streams.handshake("devtools/page/unknown");
    let failed = in_time("a response", handshake.send()).await.unwrap();
    assert_eq!(failed.status(), StatusCode::NOT_FOUND);
    let devtools = await_room(|| streams.devtools()).await;
    streams.assert_full().await;

    // The browser ends.
    let deleted = dev.delete(&format!("/browsers/{}", streams.id)).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    await_no_stream(dev).await;
    drop((devtools, events, of_another));
    streams.dev.finish().await;
}

#[tokio::test]
async fn concurrent_streams_do_not_exceed_the_limit() {
    let streams = Streams::start("5").await;
    for _ in 0..3 {
        let opening = (0..30).map(|number| match number % 2 {
            0 => open(streams.events()),
            _ => open(streams.devtools()),
        });
        let opened: Vec<Response> = join_all(opening).await.into_iter().flatten().collect();
        assert_eq!(opened.len(), 5);
        streams.assert_full().await;
        drop(opened);
        await_no_stream(&streams.dev).await;
    }
    streams.dev.finish().await;
}

#[tokio::test]
async fn long_response_is_a_stream_and_short_one_is_not() {
    let streams = Streams::start("1").await;
    let directory = tempfile::tempdir().unwrap();
    let (long, short) = (
        directory.path().join("long"),
        directory.path().join("short"),
    );
    std::fs::write(&long, vec![0; 64 << 20]).unwrap();
    std::fs::write(&short, "x").unwrap();
    let read = |path: &std::path::Path| {
        let path = format!(
            "/browsers/{}/fs/read_file?path={}",
            streams.id,
            path.display()
        );
        streams.dev.request(Method::GET, &path)
    };
    let unread = open(read(&long)).await.unwrap();
    assert!(open(read(&long)).await.is_none());
    let answer = in_time("a short response", read(&short).send())
        .await
        .unwrap();
    assert_eq!(answer.text().await.unwrap(), "x");
    drop(unread);
    let complete = await_room(|| read(&long)).await;
    let bytes = in_time("the file", complete.bytes()).await.unwrap();
    assert_eq!(bytes.len(), 64 << 20);
    await_room(|| read(&long)).await;
    streams.dev.finish().await;
}
