//! Gives the system under test the secrets of webhooks, and lets it deliver events.

use serde_json::{Value, json};

use super::{encodings::PlantedSecret, outputs::ObservedClient, plant::text};
use crate::support::webhook_receiver::WebhookReceiver;

const SECRET: &str = "canary-of-a-webhook-secret";

/// Creates webhooks, with valid and invalid requests, and has them deliver. Returns their secrets.
pub(super) async fn use_webhooks(client: &ObservedClient<'_>) -> Vec<PlantedSecret> {
    let receiver = WebhookReceiver::start(SECRET).await;
    let events = json!(["browser.created", "browser.ended"]);
    let webhook = json!({"url": receiver.url, "events": events, "secret": SECRET});
    let created = client.post("/org/webhooks", webhook.clone(), 201).await;
    let path = format!("/org/webhooks/{}", text(&created["id"]));
    // The response has the secret.
    let mut generated = webhook.clone();
    generated["secret"] = Value::Null;
    let generated = client.dev.post("/org/webhooks", generated).await.body;
    let generated_path = format!("/org/webhooks/{}", text(&generated["id"]));
    for (field, value) in [
        ("url", json!(format!("https://{SECRET}@hooks.example/"))),
        ("events", json!([SECRET])),
        ("secret", json!([SECRET])),
        ("secret", json!(SECRET.repeat(20))),
    ] {
        let mut unusable = webhook.clone();
        unusable[field] = value;
        client.post("/org/webhooks", unusable, 400).await;
    }
    let browser = client.dev.browser(json!({})).await;
    receiver.event("browser.created").await;
    // One whose signature the receiver refuses, and an endpoint that does not exist.
    for url in [&receiver.url, "http://127.0.0.1:1/"] {
        let change = json!({"url": url, "secret": text(&generated["secret"])});
        client.patch(&generated_path, change, 200).await;
        let test = format!("{generated_path}/test");
        let tested = client.post(&test, json!({}), 200).await;
        assert_eq!(tested["success"], false, "{tested}");
    }
    for path in [
        "/org/webhooks",
        &path,
        &format!("{path}/deliveries"),
        &format!("{generated_path}/deliveries"),
    ] {
        client.get(path).await;
    }
    let browser = format!("/browsers/{}", text(&browser["session_id"]));
    client.delete(&browser).await;
    vec![
        PlantedSecret::new("the secret of a webhook", SECRET),
        PlantedSecret::new(
            "the generated secret of a webhook",
            text(&generated["secret"]),
        ),
    ]
}
