//! Several processes that serve from one database.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use chrono::TimeDelta;

use super::*;

const EVENTS: usize = 40;

/// Returns the ids of the deliveries that a server has received.
fn received(server: &ScriptedServer) -> Vec<String> {
    let requests = server.requests();
    let ids = requests
        .iter()
        .map(|it| it.headers["berth-delivery"].to_str());
    ids.map(|id| id.unwrap().to_owned()).collect()
}

#[tokio::test]
async fn processes_deliver_each_event_once() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    // Each looks often, so that they compete.
    let first = fixture.start(timings());
    for _ in 0..2 {
        fixture.start(timings());
    }
    let events = ["browser.created", "browser.ended"];
    let webhook = create(&first, server.url().as_str(), &events).await;
    for _ in 0..EVENTS / 2 {
        let browser = fixture.start_browser().await;
        let store = &fixture.store;
        let ended = store.withdraw_browser(&browser, EndReason::Deleted, Utc::now());
        assert!(ended.await.unwrap());
    }
    let delivered = fixture.deliveries_when(&webhook, |found| {
        let is_delivered = |it: &WebhookDeliveryRow| it.status == WebhookDeliveryStatus::Delivered;
        found.len() == EVENTS && found.iter().all(is_delivered)
    });
    let delivered = delivered.await;
    assert!(delivered.iter().all(|it| it.attempts == 1));
    let received = received(&server);
    assert_eq!(received.len(), EVENTS);
    let distinct: HashSet<_> = received.into_iter().collect();
    let expected: HashSet<_> = delivered.iter().map(|it| it.id.to_string()).collect();
    assert_eq!(distinct, expected);
}

#[tokio::test]
async fn another_process_continues_after_the_claim_of_one_that_died() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let webhook = create(&webhooks, server.url().as_str(), &["browser.created"]).await;
    fixture.start_browser().await;
    let now = Utc::now();
    let until = now + TimeDelta::milliseconds(200);
    let claimed = fixture.store.claim_webhook(&webhook.id, "died", now, until);
    claimed.await.unwrap();
    tokio::spawn(webhooks.deliver());
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert!(delivery.last_attempt_at.unwrap() > until);
    assert_eq!(received(&server), [delivery.id.to_string()]);
}

#[tokio::test]
async fn attempt_that_a_shutdown_interrupts_is_made_by_another_process() {
    let fixture = Fixture::new().await;
    let received = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |_| match received.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Hang,
        _ => Reply::Text(""),
    })
    .await;
    let stopping = fixture.start(timings());
    let webhook = create(&stopping, server.url().as_str(), &["browser.created"]).await;
    fixture.start_browser().await;
    until(async || (server.requests().len() == 1).then_some(())).await;
    stopping.inner.shutdown.request();
    // The first releases its claim, long before it would end.
    fixture.start(timings());
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert_eq!(delivery.attempts, 1);
    assert_eq!(server.requests().len(), 2);
}
