//! `/org/webhooks`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    dev::{Answer, Dev},
    webhook_receiver::WebhookReceiver,
};

const WEBHOOKS: &str = "/org/webhooks";
const UNKNOWN: &str = "hook_00000000000000000000000000";
const SECRET: &str = "canary-of-a-webhook";
const EVENTS: [&str; 6] = [
    "browser.created",
    "browser.ended",
    "browser.profile_saved",
    "browser.profile_save_failed",
    "replay.stored",
    "replay.lost",
];

async fn create(dev: &Dev, url: &str) -> Value {
    let request = json!({"url": url, "events": ["replay.lost"], "secret": SECRET});
    let created = dev.post(WEBHOOKS, request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body
}

fn path(webhook: &Value, rest: &str) -> String {
    format!("{WEBHOOKS}/{}{rest}", webhook["id"].as_str().unwrap())
}

/// Tests a webhook. Returns the result.
async fn test(dev: &Dev, webhook: &Value) -> Value {
    let tested = dev.post(&path(webhook, "/test"), json!({})).await;
    assert_eq!(tested.status, 200, "{}", tested.body);
    tested.body
}

#[tokio::test]
async fn webhook_is_created_changed_and_deleted() {
    let dev = Dev::start().await;
    let request = json!({
        "url": "https://hooks.example.com/a?b=c",
        // Each is kept once, in one order.
        "events": ["replay.stored", "browser.ended", "replay.stored"],
    });
    let created = dev.post(WEBHOOKS, request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let mut created = created.body;
    assert!(created["id"].as_str().unwrap().starts_with("hook_"));
    assert_eq!(created["url"], "https://hooks.example.com/a?b=c");
    assert_eq!(created["events"], json!(["browser.ended", "replay.stored"]));
    assert_eq!(created["enabled"], true);
    let secret = created.as_object_mut().unwrap().remove("secret").unwrap();
    assert_eq!(secret.as_str().unwrap().len(), "whsec_".len() + 64);
    // A given secret is not returned.
    let given = create(&dev, "https://hooks.example.com").await;
    assert_eq!(given.get("secret"), None);
    assert_eq!(given["url"], "https://hooks.example.com/");

    assert_eq!(dev.get(&path(&created, "")).await.body, created);
    assert_eq!(dev.get(WEBHOOKS).await.body, json!([given, created]));
    let page = dev.get(&format!("{WEBHOOKS}?limit=1")).await;
    assert_eq!(page.body, json!([given]));
    assert_eq!(page.header("x-next-offset"), "1");
    let changes = json!({"url": "https://hooks.example.com/d", "events": EVENTS, "enabled": false});
    let changed = dev.patch(&path(&created, ""), changes).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(changed.body["url"], "https://hooks.example.com/d");
    assert_eq!(changed.body["events"], json!(EVENTS));
    assert_eq!(changed.body["enabled"], false);
    assert_eq!(changed.body["disabled_reason"], "request");
    let unchanged = dev.patch(&path(&created, ""), json!({"url": null})).await;
    assert_eq!(unchanged.body["disabled_reason"], "request");
    let enabled = dev
        .patch(&path(&created, ""), json!({"enabled": true}))
        .await
        .body;
    assert_eq!(
        (&enabled["enabled"], enabled.get("disabled_reason")),
        (&json!(true), None)
    );
    assert_eq!(dev.delete(&path(&created, "")).await.status, 204);
    for (method, rest) in [
        (Method::GET, ""),
        (Method::PATCH, ""),
        (Method::DELETE, ""),
        (Method::POST, "/test"),
        (Method::GET, "/deliveries"),
    ] {
        for webhook in [
            path(&created, rest),
            format!("{WEBHOOKS}/{UNKNOWN}{rest}"),
            format!("{WEBHOOKS}/x{rest}"),
        ] {
            let request = dev.request(method.clone(), &webhook).json(&json!({}));
            Answer::of(request).await.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn test_is_signed_and_its_outcome_is_returned() {
    let dev = Dev::start().await;
    let receiver = WebhookReceiver::start(SECRET).await;
    let webhook = create(&dev, &receiver.url).await;
    let tested = test(&dev, &webhook).await;
    assert_eq!(tested["success"], true, "{tested}");
    let received = receiver.event("webhook.test").await;
    let delivery = &tested["delivery"];
    assert_eq!(delivery["id"], received.delivery);
    assert_eq!(delivery["payload"], received.body);
    assert_eq!(received.body["data"], json!({"webhook_id": webhook["id"]}));
    assert_eq!(
        (
            &delivery["status"],
            &delivery["attempts"],
            &delivery["response_status"]
        ),
        (&json!("delivered"), &json!(1), &json!(204))
    );
    receiver.respond_with(500);
    let failed = test(&dev, &webhook).await;
    assert_eq!(failed["success"], false);
    assert_eq!(failed["delivery"]["error"], "the endpoint responded 500");
    assert_eq!(failed["delivery"].get("next_attempt_at"), None);
    // Neither disables the webhook, nor needs an enabled one.
    receiver.respond_with(410);
    assert_eq!(test(&dev, &webhook).await["success"], false);
    assert_eq!(dev.get(&path(&webhook, "")).await.body, webhook);
    let rotated = json!({"enabled": false, "secret": "another-canary-of-a-webhook"});
    dev.patch(&path(&webhook, ""), rotated).await;
    // It still has the former secret.
    receiver.respond_with(204);
    let refused = test(&dev, &webhook).await;
    assert_eq!(refused["delivery"]["response_status"], 401);
    receiver.set_secret("another-canary-of-a-webhook");
    assert_eq!(test(&dev, &webhook).await["success"], true);
    dev.finish().await;
}

#[tokio::test]
async fn deliveries_are_listed_newest_first() {
    let dev = Dev::start().await;
    let receiver = WebhookReceiver::start(SECRET).await;
    let webhook = create(&dev, &receiver.url).await;
    let mut expected = Vec::new();
    for status in [204, 500, 200] {
        receiver.respond_with(status);
        expected.insert(0, test(&dev, &webhook).await["delivery"].clone());
    }
    let list = async |query: &str| {
        dev.get(&path(&webhook, &format!("/deliveries{query}")))
            .await
    };
    let listed = list("").await;
    assert_eq!(listed.body, json!(expected));
    assert_eq!(listed.header("x-has-more"), "false");
    let page = list("?limit=1&offset=1").await;
    assert_eq!(page.body, json!([expected[1]]));
    assert_eq!(
        (page.header("x-has-more"), page.header("x-next-offset")),
        ("true", "2")
    );
    for (status, found) in [
        ("delivered", json!([expected[0], expected[2]])),
        ("failed", json!([expected[1]])),
        ("pending", json!([])),
    ] {
        assert_eq!(list(&format!("?status={status}")).await.body, found);
    }
    for (query, field) in [
        ("?status=lost", "status"),
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?offset=-1", "offset"),
    ] {
        let refused = list(query).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn secret_is_needed_for_another_server() {
    let dev = Dev::start().await;
    let receiver = WebhookReceiver::start(SECRET).await;
    let webhook = create(&dev, "https://hooks.example.com/").await;
    let moved = dev
        .patch(&path(&webhook, ""), json!({"url": receiver.url}))
        .await;
    moved.assert_error(400, "bad_request");
    assert_eq!(moved.bad_fields(), ["secret"]);
    let changes = json!({"url": receiver.url, "secret": SECRET});
    let moved = dev.patch(&path(&webhook, ""), changes).await;
    assert_eq!(moved.status, 200, "{}", moved.body);
    assert_eq!(test(&dev, &webhook).await["success"], true);
    dev.finish().await;
}

#[tokio::test]
async fn internal_address_is_not_connected_to() {
    let receiver = WebhookReceiver::start(SECRET).await;
    let dev = Dev::with(&["--allow-networks", "192.0.2.0/24"]).await;
    let webhook = create(&dev, &receiver.url).await;
    let tested = test(&dev, &webhook).await;
    assert_eq!(tested["success"], false);
    let error = tested["delivery"]["error"].as_str().unwrap();
    assert!(error.contains("not among the allowed"), "{error}");
    assert!(receiver.received().is_empty());
    dev.finish().await;
}

#[tokio::test]
async fn number_of_webhooks_is_bounded() {
    let dev = Dev::start().await;
    for _ in 0..20 {
        create(&dev, "https://hooks.example.com/").await;
    }
    let request = json!({"url": "https://hooks.example.com/", "events": ["replay.lost"]});
    let refused = dev.post(WEBHOOKS, request).await;
    refused.assert_error(409, "conflict");
    assert_eq!(refused.header("x-should-retry"), "false");
    dev.finish().await;
}

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    let webhook = create(&dev, "https://hooks.example.com/").await;
    let long = format!("https://hooks.example.com/{}", "x".repeat(2048));
    for (field, name, value) in [
        ("url", "url", json!("planted")),
        ("url", "url", json!("ftp://hooks.example.com/")),
        (
            "url",
            "url",
            json!("https://user:planted@hooks.example.com"),
        ),
        ("url", "url", json!("https://planted@hooks.example.com")),
        ("url", "url", json!("https://hooks.example.com/#planted")),
        ("url", "url", json!("https://")),
        ("url", "url", json!(long)),
        ("url", "url", json!(["https://hooks.example.com/"])),
        ("events", "events", json!([])),
        ("events", "events", json!("browser.ended")),
        ("events", "events", json!(vec!["browser.ended"; 65])),
        ("events", "events[1]", json!(["browser.ended", "planted"])),
        ("events", "events[0]", json!(["webhook.test"])),
        ("events", "events[0]", json!([7])),
        ("secret", "secret", json!("planted")),
        ("secret", "secret", json!("x".repeat(15))),
        ("secret", "secret", json!("x".repeat(257))),
        ("secret", "secret", json!(7)),
    ] {
        let mut request = json!({"url": "https://hooks.example.com/", "events": ["replay.lost"]});
        request[field] = value.clone();
        let changes = json!({field: value});
        for refused in [
            dev.post(WEBHOOKS, request).await,
            dev.patch(&path(&webhook, ""), changes).await,
        ] {
            refused.assert_error(400, "bad_request");
            assert_eq!(refused.bad_fields(), [name], "{value}");
            assert!(
                !refused.body.to_string().contains("planted"),
                "{}",
                refused.body
            );
        }
    }
    let refused = dev
        .patch(&path(&webhook, ""), json!({"enabled": "yes"}))
        .await;
    assert_eq!(refused.bad_fields(), ["enabled"]);
    let refused = dev.post(WEBHOOKS, json!({"secret": "short"})).await;
    assert_eq!(refused.bad_fields(), ["events", "secret", "url"]);
    // Bounds that are permitted.
    for secret in ["x".repeat(16), "x".repeat(256)] {
        let changed = dev
            .patch(&path(&webhook, ""), json!({ "secret": secret }))
            .await;
        assert_eq!(changed.status, 200, "{}", changed.body);
    }
    assert_eq!(dev.get(WEBHOOKS).await.body.as_array().unwrap().len(), 1);
    dev.finish().await;
}

#[tokio::test]
async fn key_of_a_project_is_refused_for_webhooks() {
    let dev = Dev::start().await;
    let webhook = create(&dev, "https://hooks.example.com/").await;
    let project = dev.get("/auth/context").await.body["project_id"].clone();
    let key = json!({"name": "bound", "project_id": project});
    let key = dev.post("/org/api_keys", key).await.body["key"].clone();
    let valid = json!({"url": "https://hooks.example.com/", "events": ["replay.lost"]});
    for (method, path) in [
        (Method::POST, WEBHOOKS.to_owned()),
        (Method::GET, WEBHOOKS.to_owned()),
        (Method::GET, path(&webhook, "")),
        (Method::PATCH, path(&webhook, "")),
        (Method::DELETE, path(&webhook, "")),
        (Method::POST, path(&webhook, "/test")),
        (Method::GET, path(&webhook, "/deliveries")),
    ] {
        let request = dev.anonymous(method, &path).json(&valid);
        Answer::of(request.try_clone().unwrap())
            .await
            .assert_error(401, "unauthorized");
        let request = request.bearer_auth(key.as_str().unwrap());
        Answer::of(request).await.assert_error(403, "forbidden");
    }
    assert_eq!(dev.get(WEBHOOKS).await.body, json!([webhook]));
    dev.finish().await;
}
