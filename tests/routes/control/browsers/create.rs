//! `POST /browsers`.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::id;
use crate::support::{
    dev::{Answer, Dev},
    wait::until,
};

#[tokio::test]
async fn created_browser_responds_immediately() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = id(&browser);
    assert!(id.starts_with("brw_"));
    assert_eq!(
        browser["viewport"],
        json!({"width": 1920, "height": 1080, "refresh_rate": 25})
    );
    assert_eq!(
        (&browser["timeout_seconds"], &browser["tags"]),
        (&json!(60), &json!({}))
    );
    assert_eq!(
        (&browser["stealth"], &browser["kiosk_mode"]),
        (&json!(false), &json!(false))
    );
    for absent in [
        "name",
        "start_url",
        "deleted_at",
        "browser_live_view_url",
        "browser_live_view_read_only_url",
    ] {
        assert_eq!(browser.get(absent), None, "{absent}");
    }
    let base_url = format!("{}/browsers/{id}", dev.base_url);
    assert_eq!(browser["base_url"], base_url.as_str());
    let ws = base_url.replacen("http", "ws", 1);
    assert!(
        browser["cdp_ws_url"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{ws}/cdp?jwt="))
    );
    let created = browser["created_at"].as_str().unwrap();
    assert!(created.len() == 24 && created.ends_with('Z'), "{created}");

    let version = dev.get(&format!("/browsers/{id}/json/version")).await;
    assert!(
        version.body["Browser"].as_str().unwrap().contains("Chrome"),
        "{}",
        version.body
    );
    let seen = dev.get(&format!("/browsers/{id}")).await;
    assert_eq!(
        (seen.status, &seen.body["created_at"]),
        (StatusCode::OK, &browser["created_at"])
    );
    dev.finish().await;
}

#[tokio::test]
async fn every_option_is_applied() {
    let dev = Dev::start().await;
    let options = json!({
        "name": "mine", "tags": {"team": "a", "ümlaut": "✓"}, "timeout_seconds": 259_200, "kiosk_mode": true,
        "viewport": {"width": 1024, "height": 768, "refresh_rate": 10}, "start_url": "about:blank",
        "stealth": false, "profile": null, "extensions": [], "unknown": {"is": "ignored"},
    });
    let browser = dev.post("/browsers", options.clone()).await.body;
    for field in [
        "name",
        "tags",
        "timeout_seconds",
        "kiosk_mode",
        "viewport",
        "start_url",
    ] {
        assert_eq!(browser[field], options[field], "{field}");
    }
    let base_url = browser["base_url"].as_str().unwrap();
    for (field, path) in [
        ("browser_live_view_url", "/live?jwt="),
        ("browser_live_view_read_only_url", "/live/view?jwt="),
    ] {
        let url = browser[field].as_str().unwrap();
        assert!(url.starts_with(&format!("{base_url}{path}")), "{url}");
    }
    assert_eq!(browser["headless"], false);
    let by_name = dev.get("/browsers/mine").await;
    assert_eq!(by_name.body["session_id"], browser["session_id"]);
    let commands: Vec<String> = dev
        .descendants()
        .into_iter()
        .map(|(_, command)| command)
        .collect();
    assert!(
        commands.iter().any(|command| command.contains("--kiosk")),
        "{commands:?}"
    );
    dev.finish().await;
}

#[tokio::test]
async fn urls_use_host_of_request_or_public_url() {
    let urls = |browser: &Value| {
        let cdp = browser["cdp_ws_url"].as_str().unwrap().split_once('?');
        (browser["base_url"].clone(), cdp.unwrap().0.to_owned())
    };
    let dev = Dev::start().await;
    let created = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", id(&created));
    let request = dev.request(Method::GET, &path);
    let seen = Answer::of(request.header("host", "berth.test:99"))
        .await
        .body;
    let expected = (
        json!(format!("http://berth.test:99{path}")),
        format!("ws://berth.test:99{path}/cdp"),
    );
    assert_eq!(urls(&seen), expected);
    dev.finish().await;

    let dev = Dev::with(&["--public-url", "https://berth.test/here/"]).await;
    assert_eq!(dev.base_url, "https://berth.test/here");
    dev.finish().await;
}

#[tokio::test]
async fn browsers_are_created_and_deleted_concurrently() {
    let dev = Dev::start().await;
    for _ in 0..2 {
        let created = join_all((0..4).map(|_| dev.browser(json!({})))).await;
        let ids: HashSet<&str> = created.iter().map(id).collect();
        assert_eq!(ids.len(), 4);
        let deletions = created.iter().map(|browser| async {
            let path = format!("/browsers/{}", id(browser));
            assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
        });
        join_all(deletions).await;
        assert_eq!(dev.descendants(), []);
    }
    let directories = dev.state_dir().join("hosts");
    assert_eq!(std::fs::read_dir(directories).unwrap().count(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn name_of_active_browser_is_409() {
    let dev = Dev::start().await;
    let first = dev.browser(json!({"name": "n"})).await;
    let conflict = dev
        .post("/browsers", json!({"name": "n", "headless": true}))
        .await;
    conflict.assert_error(409, "conflict");
    assert_eq!(conflict.header("x-should-retry"), "false");
    assert_eq!(conflict.bad_fields(), ["name"]);
    assert_eq!(
        dev.delete("/browsers/n").await.status,
        StatusCode::NO_CONTENT
    );
    let second = dev.browser(json!({"name": "n"})).await;
    assert_ne!(id(&first), id(&second));
    dev.finish().await;
}

#[tokio::test]
async fn repeated_idempotency_key_creates_one_browser() {
    let dev = Dev::start().await;
    let create = |key: &'static str, body: serde_json::Value| {
        let request = dev.request(Method::POST, "/browsers").json(&body);
        Answer::of(request.header("idempotency-key", key))
    };
    let options = json!({"headless": true, "timeout_seconds": 60});
    // The same request in another form, sent concurrently.
    let (first, second) = tokio::join!(
        create("k", options.clone()),
        create("k", json!({"headless": true}))
    );
    assert_eq!(
        (first.status, second.status),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert_eq!(id(&first.body), id(&second.body));
    assert_eq!(dev.get("/browsers").await.body.as_array().unwrap().len(), 1);

    let other = create("k", json!({"headless": true, "timeout_seconds": 61})).await;
    other.assert_error(409, "conflict");
    assert_eq!(other.header("x-should-retry"), "false");

    // The response stays the same after the browser is deleted.
    dev.delete(&format!("/browsers/{}", id(&first.body))).await;
    let again = create("k", options).await;
    assert_eq!(
        (again.status, id(&again.body)),
        (StatusCode::CREATED, id(&first.body))
    );
    assert!(again.body["deleted_at"].is_string());
    dev.finish().await;
}

#[tokio::test]
async fn create_above_browser_limit_is_429() {
    let dev = Dev::with(&["--max-browsers", "1"]).await;
    let browser = dev.browser(json!({})).await;
    let full = dev.post("/browsers", json!({"headless": true})).await;
    full.assert_error(429, "limit_exceeded");
    assert!(full.header("retry-after").parse::<u64>().unwrap() > 0);
    dev.delete(&format!("/browsers/{}", id(&browser))).await;
    dev.browser(json!({})).await;
    dev.finish().await;
}

#[tokio::test]
async fn disconnected_client_leaves_no_browser() {
    let dev = Dev::start().await;
    let body = json!({"headless": true, "name": "abandoned"});
    let request = dev.request(Method::POST, "/browsers").json(&body).send();
    let mut request = Box::pin(request);
    // It disconnects once the agent is starting.
    let started = until("the start of an agent", async || {
        (!dev.descendants_with(" agent ").is_empty()).then_some(())
    });
    tokio::select! {
        _ = &mut request => panic!("the browser started before its agent"),
        () = started => {}
    }
    drop(request);
    until("the end of the processes", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    let directories = dev.state_dir().join("hosts");
    until("the removal of the directory", async || {
        (std::fs::read_dir(&directories).unwrap().count() == 0).then_some(())
    })
    .await;
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    // The name can be used again.
    dev.browser(json!({"name": "abandoned"})).await;
    dev.finish().await;
}

#[tokio::test]
async fn failed_start_is_503_and_leaves_nothing() {
    for program in ["/bin/false", "/bin/cat"] {
        // The first exits at once; the second keeps running, but is not a browser.
        let dev = Dev::with(&["--chromium", program, "--start-seconds", "3"]).await;
        let response = dev
            .post("/browsers", json!({"headless": true, "name": "n"}))
            .await;
        response.assert_error(503, "unavailable");
        assert_eq!(response.body["inner_error"]["code"], "start_failed");
        assert!(!response.body.to_string().contains(program));
        until("the end of the processes", async || {
            dev.descendants().is_empty().then_some(())
        })
        .await;
        assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
        dev.finish().await;
    }
}

#[tokio::test]
async fn idle_browser_is_deleted_and_connected_one_is_not() {
    let dev = Dev::start().await;
    let used = dev.browser(json!({"timeout_seconds": 10})).await;
    let url = used["cdp_ws_url"].as_str().unwrap();
    let (connection, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let unused = dev.browser(json!({"timeout_seconds": 10})).await;
    let ended = |browser: &Value| {
        // Neither listing browsers nor reading a deleted one counts as use.
        let path = format!("/browsers/{}?status=deleted", id(browser));
        let dev = &dev;
        async move {
            until("the deletion of the idle browser", async || {
                let response = dev.get(&path).await;
                (response.status == StatusCode::OK).then_some(response.body)
            })
            .await
        }
    };
    let gone = ended(&unused).await;
    let time =
        |field: &str| chrono::DateTime::parse_from_rfc3339(gone[field].as_str().unwrap()).unwrap();
    let lived = (time("deleted_at") - time("created_at")).to_std().unwrap();
    assert!(lived >= Duration::from_secs(10), "{lived:?}");
    dev.get(&format!("/browsers/{}", id(&unused)))
        .await
        .assert_error(404, "not_found");

    // The other browser is older, but still has a client.
    assert_eq!(
        dev.get("/browsers").await.body[0]["session_id"],
        used["session_id"]
    );
    drop(connection);
    ended(&used).await;
    until("the end of the processes", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn failed_insert_releases_name_and_idempotency_key() {
    let dev = Dev::start().await;
    let create = async || {
        let body = json!({"name": "n", "headless": true});
        let request = dev.request(Method::POST, "/browsers").json(&body);
        Answer::of(request.header("idempotency-key", "k")).await
    };
    dev.refuse("active").await;
    create().await.assert_error(500, "internal_error");
    assert_eq!(dev.descendants(), []);
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.allow().await;
    let created = create().await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    dev.finish().await;
}
