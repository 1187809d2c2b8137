//! `POST /browsers`.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::id;
use crate::support::dev::{Answer, Dev};
use crate::support::wait::until;

#[tokio::test]
async fn a_browser_answers_as_soon_as_it_is_told_of() {
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
async fn every_wish_is_kept() {
    let dev = Dev::start().await;
    let wishes = json!({
        "name": "mine", "tags": {"team": "a", "ümlaut": "✓"}, "timeout_seconds": 259_200, "kiosk_mode": true,
        "viewport": {"width": 1024, "height": 768, "refresh_rate": 10}, "start_url": "about:blank",
        "stealth": false, "profile": null, "extensions": [], "unknown": {"is": "ignored"},
    });
    let browser = dev.post("/browsers", wishes.clone()).await.body;
    for field in [
        "name",
        "tags",
        "timeout_seconds",
        "kiosk_mode",
        "viewport",
        "start_url",
    ] {
        assert_eq!(browser[field], wishes[field], "{field}");
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
async fn its_urls_are_where_the_client_reached_the_server() {
    let urls = |browser: &Value| {
        let cdp = browser["cdp_ws_url"].as_str().unwrap().split_once('?');
        (browser["base_url"].clone(), cdp.unwrap().0.to_owned())
    };
    let dev = Dev::start().await;
    let made = dev.browser(json!({})).await;
    let path = format!("/browsers/{}", id(&made));
    let request = dev.request(Method::GET, &path);
    let seen = Answer::of(request.header("host", "berth.test:99"))
        .await
        .body;
    let there = (
        json!(format!("http://berth.test:99{path}")),
        format!("ws://berth.test:99{path}/cdp"),
    );
    assert_eq!(urls(&seen), there);
    dev.finish().await;

    let dev = Dev::with(&["--public-url", "https://berth.test/here/"]).await;
    assert_eq!(dev.base_url, "https://berth.test/here");
    dev.finish().await;
}

#[tokio::test]
async fn many_come_and_go_at_once() {
    let dev = Dev::start().await;
    for _ in 0..2 {
        let made = join_all((0..4).map(|_| dev.browser(json!({})))).await;
        let ids: HashSet<&str> = made.iter().map(id).collect();
        assert_eq!(ids.len(), 4);
        let ends = made.iter().map(|browser| async {
            let path = format!("/browsers/{}", id(browser));
            assert_eq!(dev.delete(&path).await.status, StatusCode::NO_CONTENT);
        });
        join_all(ends).await;
        assert_eq!(dev.descendants(), []);
    }
    let folders = dev.state_dir().join("browsers");
    assert_eq!(std::fs::read_dir(folders).unwrap().count(), 0);
    dev.finish().await;
}

#[tokio::test]
async fn a_name_is_taken_while_its_browser_lives() {
    let dev = Dev::start().await;
    let first = dev.browser(json!({"name": "n"})).await;
    let clash = dev
        .post("/browsers", json!({"name": "n", "headless": true}))
        .await;
    clash.assert_error(409, "conflict");
    assert_eq!(clash.header("x-should-retry"), "false");
    assert_eq!(clash.bad_fields(), ["name"]);
    assert_eq!(
        dev.delete("/browsers/n").await.status,
        StatusCode::NO_CONTENT
    );
    let second = dev.browser(json!({"name": "n"})).await;
    assert_ne!(id(&first), id(&second));
    dev.finish().await;
}

#[tokio::test]
async fn the_same_idempotency_key_makes_one_browser() {
    let dev = Dev::start().await;
    let make = |key: &'static str, body: serde_json::Value| {
        let request = dev.request(Method::POST, "/browsers").json(&body);
        Answer::of(request.header("idempotency-key", key))
    };
    let wishes = json!({"headless": true, "timeout_seconds": 60});
    // The same wishes in other words, and at the same time.
    let (first, second) = tokio::join!(
        make("k", wishes.clone()),
        make("k", json!({"headless": true}))
    );
    assert_eq!(
        (first.status, second.status),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    assert_eq!(id(&first.body), id(&second.body));
    assert_eq!(dev.get("/browsers").await.body.as_array().unwrap().len(), 1);

    let other = make("k", json!({"headless": true, "timeout_seconds": 61})).await;
    other.assert_error(409, "conflict");
    assert_eq!(other.header("x-should-retry"), "false");

    // The result stays the same after the browser's end.
    dev.delete(&format!("/browsers/{}", id(&first.body))).await;
    let again = make("k", wishes).await;
    assert_eq!(
        (again.status, id(&again.body)),
        (StatusCode::CREATED, id(&first.body))
    );
    assert!(again.body["deleted_at"].is_string());
    dev.finish().await;
}

#[tokio::test]
async fn no_more_browsers_than_the_machine_may_have() {
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
async fn a_client_that_goes_away_leaves_nothing() {
    let dev = Dev::start().await;
    let body = json!({"headless": true, "name": "abandoned"});
    let request = dev.request(Method::POST, "/browsers").json(&body).send();
    let mut request = Box::pin(request);
    // It goes away once the agent is starting.
    let started = until("an agent is starting", async || {
        (!dev.descendants_with(" agent ").is_empty()).then_some(())
    });
    tokio::select! {
        _ = &mut request => panic!("the browser was up before its agent"),
        () = started => {}
    }
    drop(request);
    until("its processes are gone", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    let folders = dev.state_dir().join("browsers");
    until("its folder is gone", async || {
        (std::fs::read_dir(&folders).unwrap().count() == 0).then_some(())
    })
    .await;
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    // Its name is free.
    dev.browser(json!({"name": "abandoned"})).await;
    dev.finish().await;
}

#[tokio::test]
async fn a_browser_that_does_not_come_up_is_told_and_cleared_away() {
    for program in ["/bin/false", "/bin/cat"] {
        // The first ends at once, the second neither ends nor becomes a browser.
        let dev = Dev::with(&["--chromium", program, "--start-seconds", "3"]).await;
        let answer = dev
            .post("/browsers", json!({"headless": true, "name": "n"}))
            .await;
        answer.assert_error(503, "unavailable");
        assert_eq!(answer.body["inner_error"]["code"], "start_failed");
        assert!(!answer.body.to_string().contains(program));
        until("its processes are gone", async || {
            dev.descendants().is_empty().then_some(())
        })
        .await;
        assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
        dev.finish().await;
    }
}

#[tokio::test]
async fn nobody_using_it_ends_a_browser_and_a_connection_is_use() {
    let dev = Dev::start().await;
    let used = dev.browser(json!({"timeout_seconds": 10})).await;
    let url = used["cdp_ws_url"].as_str().unwrap();
    let (connection, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let unused = dev.browser(json!({"timeout_seconds": 10})).await;
    let ended = |browser: &Value| {
        // Reading the list is no use of it, nor is looking among the ended ones.
        let path = format!("/browsers/{}?status=deleted", id(browser));
        let dev = &dev;
        async move {
            until("the idle end", async || {
                let answer = dev.get(&path).await;
                (answer.status == StatusCode::OK).then_some(answer.body)
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

    // The other is older, and its client still there.
    assert_eq!(
        dev.get("/browsers").await.body[0]["session_id"],
        used["session_id"]
    );
    drop(connection);
    ended(&used).await;
    until("its processes are gone", async || {
        dev.descendants().is_empty().then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn a_browser_that_cannot_be_recorded_leaves_its_name_and_its_key_free() {
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
    let made = create().await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    dev.finish().await;
}
