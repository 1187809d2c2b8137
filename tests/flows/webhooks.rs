//! Events of browsers at endpoints of customers.

use std::{collections::HashSet, fs, path::Path};

use chrono::Utc;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    dev::Dev,
    profiles::{end, path, profile},
    python::{output_of, python},
    replays::add_finished,
    wait::until,
    webhook_receiver::{ReceivedEvent, WebhookReceiver, sign},
};

const SECRET: &str = "canary-of-a-webhook";
const EVENTS: [&str; 6] = [
    "browser.created",
    "browser.ended",
    "browser.profile_saved",
    "browser.profile_save_failed",
    "replay.stored",
    "replay.lost",
];

/// Subscribes a receiver to all events. Returns the path of the webhook.
pub(super) async fn subscribe(dev: &Dev, receiver: &WebhookReceiver) -> String {
    let request = json!({"url": receiver.url, "events": EVENTS, "secret": SECRET});
    let created = dev.post("/org/webhooks", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    format!("/org/webhooks/{}", created.body["id"].as_str().unwrap())
}

pub(super) async fn receiver() -> WebhookReceiver {
    WebhookReceiver::start(SECRET).await
}

/// Waits until a webhook has this many deliveries, all of which have arrived. Returns them.
pub(super) async fn all_delivered(dev: &Dev, webhook: &str, count: usize) -> Vec<Value> {
    until("all deliveries", async || {
        let listed = dev.get(&format!("{webhook}/deliveries")).await.body;
        let listed = listed.as_array().unwrap().clone();
        let mut statuses = listed.iter().map(|it| &it["status"]);
        (listed.len() == count && statuses.all(|status| status == "delivered")).then_some(listed)
    })
    .await
}

#[tokio::test]
async fn events_of_a_browser_arrive() {
    let dev = Dev::start().await;
    let receiver = receiver().await;
    let webhook = subscribe(&dev, &receiver).await;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let saved = profile(&dev, "shop").await;
    let options = json!({
        "name": "n",
        "start_url": "about:blank?token=secret",
        "profile": {"name": "shop", "save_changes": true},
    });
    let browser = dev.browser(options).await;
    let id = &browser["session_id"];
    let started = receiver.event("browser.created").await;
    assert_eq!(started.body["data"]["name"], "n");
    assert_eq!(started.body["data"]["profile_id"], json!(saved));
    assert_eq!(started.body["data"]["created_at"], browser["created_at"]);
    let replay = add_finished(&dev, &browser, b"recorded");
    end(&dev, &browser).await;
    let ended = receiver.event("browser.ended").await;
    assert_eq!(ended.body["data"]["reason"], "deleted");
    let version = receiver.event("browser.profile_saved").await;
    assert_eq!(version.body["data"]["profile_id"], json!(saved));
    assert_eq!(version.body["data"]["version"], 1);
    let stored = receiver.event("replay.stored").await;
    assert_eq!(stored.body["data"]["replay_id"], json!(replay));
    assert_eq!(stored.body["data"]["size_bytes"], "recorded".len());

    let deliveries = all_delivered(&dev, &webhook, 4).await;
    let received = receiver.received();
    assert_eq!(received.len(), 4, "{received:?}");
    let url = browser["cdp_ws_url"].as_str().unwrap();
    let (_, token) = url.split_once("jwt=").unwrap();
    for ReceivedEvent { delivery, body, .. } in &received {
        assert_eq!(body["project_id"], project);
        assert_eq!(body["data"]["session_id"], *id);
        let listed = deliveries.iter().find(|it| it["id"] == *delivery).unwrap();
        assert_eq!(listed["payload"], *body);
        let text = body.to_string();
        assert!(!text.contains("secret") && !text.contains("://"), "{text}");
        assert!(!text.contains(token), "{text}");
    }
    // Disabled, it gets nothing, and later nothing of that time.
    dev.patch(&webhook, json!({"enabled": false})).await;
    let other = dev.browser(json!({})).await;
    dev.patch(&webhook, json!({"enabled": true})).await;
    end(&dev, &other).await;
    all_delivered(&dev, &webhook, 5).await;
    assert_eq!(receiver.received()[4].body["type"], "browser.ended");
    dev.finish().await;
}

#[tokio::test]
async fn deliveries_of_a_killed_control_are_made_after_its_start() {
    let dev = Dev::start().await;
    let receiver = receiver().await;
    receiver.respond_with(500);
    let webhook = subscribe(&dev, &receiver).await;
    let browser = dev.browser(json!({})).await;
    let first = receiver.event("browser.created").await;
    until("a recorded attempt", async || {
        let listed = dev.get(&format!("{webhook}/deliveries")).await.body;
        (listed[0]["attempts"] != 0).then_some(())
    })
    .await;
    let dev = Dev::start_in(dev.crash().await, &[]).await;
    receiver.respond_with(204);
    let deliveries = all_delivered(&dev, &webhook, 2).await;
    // The next start has found that the browser is gone.
    let ended = &deliveries[0]["payload"];
    assert_eq!(ended["type"], "browser.ended");
    assert_eq!(ended["data"]["session_id"], browser["session_id"]);
    assert_eq!(ended["data"]["reason"], "gone");
    assert_eq!(deliveries[1]["id"], first.delivery);
    assert!(deliveries[1]["attempts"].as_u64().unwrap() >= 2);
    let ids: HashSet<String> = receiver
        .received()
        .into_iter()
        .map(|it| it.delivery)
        .collect();
    assert_eq!(ids.len(), 2);
    dev.finish().await;
}

/// Returns the program of a language in the documentation.
fn documented(language: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/webhooks.md");
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Calls the documented function on each body, signature and secret.
const PYTHON: &str = "
import json, sys
print(json.dumps([verify(body.encode(), signature, secret)
                  for body, signature, secret in json.loads(sys.argv[1])]))
";
const NODE: &str = "
console.log(JSON.stringify(JSON.parse(process.argv[2]).map(
  ([body, signature, secret]) => verify(Buffer.from(body), signature, secret))));
";

#[tokio::test]
async fn documented_programs_verify_requests() {
    let dev = Dev::start().await;
    let receiver = receiver().await;
    let webhook = subscribe(&dev, &receiver).await;
    dev.post(&format!("{webhook}/test"), json!({})).await;
    let ReceivedEvent {
        bytes, signature, ..
    } = receiver.event("webhook.test").await;
    let body = String::from_utf8(bytes.to_vec()).unwrap();
    let other = body.replace("webhook.test", "webhook.tests");
    let now = Utc::now().timestamp();
    let at = |timestamp: i64| sign(body.as_bytes(), timestamp, SECRET);
    let (timestamp, digest) = signature.split_once(',').unwrap();
    let cases = [
        (&body, signature.clone(), SECRET, true),
        (&body, at(now - 240), SECRET, true),
        (&body, at(now - 900), SECRET, false),
        (&body, at(now + 900), SECRET, false),
        (&other, signature.clone(), SECRET, false),
        (&body, signature.clone(), "another-secret-of-it", false),
        (&body, format!("{digest},{timestamp}"), SECRET, true),
        (&body, timestamp.to_owned(), SECRET, false),
        (&body, digest.to_owned(), SECRET, false),
        (&body, format!("{timestamp},v1="), SECRET, false),
        (&body, format!("{timestamp},v1=ü"), SECRET, false),
        (&body, format!("t=x,{digest}"), SECRET, false),
        (&body, String::new(), SECRET, false),
    ];
    let input: Vec<Value> = cases
        .iter()
        .map(|(body, signature, secret, _)| json!([body, signature, secret]))
        .collect();
    let input = json!(input).to_string();
    let expected: Vec<bool> = cases.iter().map(|case| case.3).collect();
    let directory = tempfile::tempdir().unwrap();
    for (program, language, file, harness) in [
        (python(), "python", "verify.py", PYTHON),
        ("node".into(), "js", "verify.mjs", NODE),
    ] {
        let file = directory.path().join(file);
        fs::write(&file, documented(language) + harness).unwrap();
        let mut command = Command::new(program);
        let printed = output_of(command.arg(file).arg(&input)).await;
        let results: Vec<bool> = serde_json::from_str(&printed).unwrap();
        assert_eq!(results, expected, "{language}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn leased_browser_of_a_pool_is_an_event() {
    let dev = Dev::start().await;
    let receiver = receiver().await;
    let webhook = subscribe(&dev, &receiver).await;
    let pool = json!({"name": "pool", "size": 1, "headless": true, "fill_rate_per_minute": 10_000});
    let pool = dev.post("/browser_pools", pool).await.body;
    let leased = dev.post("/browser_pools/pool/acquire", json!({})).await;
    assert_eq!(leased.status, 200, "{}", leased.body);
    let started = receiver.event("browser.created").await;
    assert_eq!(started.body["data"]["pool_id"], pool["id"]);
    let release = json!({"session_id": leased.body["session_id"]});
    let released = dev.post("/browser_pools/pool/release", release).await;
    assert_eq!(released.status, 204, "{}", released.body);
    let ended = receiver.event("browser.ended").await;
    assert_eq!(ended.body["data"]["reason"], "deleted");
    // The browser that waits in the pool is none of a client.
    assert_eq!(all_delivered(&dev, &webhook, 2).await.len(), 2);
    dev.get(&path(&leased.body))
        .await
        .assert_error(404, "not_found");
    dev.finish().await;
}
