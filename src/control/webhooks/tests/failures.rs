//! Endpoints that fail, and those that are not to be reached.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::header;

use super::*;
use crate::{api::webhooks::WebhookDisabledReason, control::webhooks::attempt::MAX_ATTEMPTS};

const EVENT: &[&str] = &["browser.created"];

#[tokio::test]
async fn failed_attempt_is_repeated_with_the_same_id_and_body() {
    let fixture = Fixture::new().await;
    let received = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |_| match received.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Failure(500, "out of order"),
        1 => Reply::Close,
        _ => Reply::Status(204),
    })
    .await;
    let webhooks = fixture.start(timings());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    fixture.start_browser().await;
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert_eq!(delivery.attempts, 3);
    assert_eq!(
        (delivery.response_status, delivery.error),
        (Some(204), None)
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        verify(request, SECRET);
        assert_eq!(request.headers["berth-delivery"], delivery.id.as_str());
        assert_eq!(request.body, delivery.payload);
    }
}

#[tokio::test]
async fn delivery_fails_after_the_last_attempt() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Failure(503, "out of order")).await;
    let webhooks = fixture.start(timings());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    fixture.start_browser().await;
    let failed = WebhookDeliveryStatus::Failed;
    let delivery = fixture.only_delivery(&webhook, failed).await;
    assert_eq!(delivery.attempts, MAX_ATTEMPTS);
    assert_eq!(delivery.next_attempt_at, None);
    assert_eq!(delivery.response_status, Some(503));
    assert_eq!(delivery.response_body.unwrap(), "out of order");
    assert_eq!(delivery.error.unwrap(), "the endpoint responded 503");
    assert_eq!(server.requests().len(), 15);
}

/// Tests an endpoint once. Returns the delivery.
async fn test(fixture: &Fixture, http: OutboundClient, url: &str) -> WebhookDeliveryRow {
    test_within(timings().attempt_timeout, fixture, http, url).await
}

async fn test_within(
    attempt_timeout: Duration,
    fixture: &Fixture,
    http: OutboundClient,
    url: &str,
) -> WebhookDeliveryRow {
    let timings = WebhookTimings {
        attempt_timeout,
        ..timings()
    };
    let webhooks = fixture.service(timings, http);
    let webhook = create(&webhooks, url, EVENT).await;
    webhooks.test(webhook.id.as_str()).await.unwrap()
}

#[tokio::test]
async fn each_failure_has_its_reason() {
    let fixture = Fixture::new().await;
    let target = ScriptedServer::start(|_| Reply::Text("reached")).await;
    let location = target.url().to_string();
    let server = ScriptedServer::start(move |request| match request.target.as_str() {
        "/redirect" => Reply::Header(307, header::LOCATION, location.clone()),
        "/close" => Reply::Close,
        "/refused" => Reply::Failure(400, "no"),
        path => panic!("{path}"),
    })
    .await;
    for (path, status, body, error) in [
        (
            "redirect",
            Some(307),
            Some(""),
            "the endpoint responded 307, and redirects are not followed",
        ),
        (
            "close",
            None,
            None,
            "127.0.0.1 closed the connection, or its response is not valid HTTP",
        ),
        (
            "refused",
            Some(400),
            Some("no"),
            "the endpoint responded 400",
        ),
    ] {
        let url = server.url().join(path).unwrap();
        let delivery = test(&fixture, loopback_client(), url.as_str()).await;
        assert_eq!(delivery.status, WebhookDeliveryStatus::Failed, "{path}");
        assert_eq!((delivery.attempts, delivery.next_attempt_at), (1, None));
        assert_eq!(delivery.response_status, status, "{path}");
        assert_eq!(delivery.response_body.as_deref(), body, "{path}");
        assert_eq!(delivery.error.as_deref(), Some(error));
    }
    assert!(target.requests().is_empty());
}

#[tokio::test]
async fn endpoint_without_a_response_fails_a_delivery() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Hang).await;
    let (timeout, url) = (Duration::from_millis(100), server.url());
    let delivery = test_within(timeout, &fixture, loopback_client(), url.as_str()).await;
    assert_eq!(delivery.status, WebhookDeliveryStatus::Failed);
    assert_eq!(
        (delivery.response_status, delivery.response_body),
        (None, None)
    );
    assert_eq!(delivery.error.unwrap(), "no complete response within 100ms");
}

#[tokio::test]
async fn long_body_does_not_fail_a_delivery() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Endless).await;
    let delivery = test(&fixture, loopback_client(), server.url().as_str()).await;
    assert_eq!(delivery.status, WebhookDeliveryStatus::Delivered);
    assert_eq!(delivery.response_body.unwrap().len(), 1024);
}

#[tokio::test]
async fn internal_addresses_and_unknown_certificates_are_refused() {
    let fixture = Fixture::new().await;
    let plain = ScriptedServer::start(|_| Reply::Text("reached")).await;
    let secure = ScriptedServer::start_tls("127.0.0.1", |_| Reply::Text("reached")).await;
    let public_only = || OutboundClient::new(OutboundOptions::default()).unwrap();
    let loopback_only = || {
        OutboundClient::new(OutboundOptions {
            policy: AddressPolicy::new(AllowedNetwork::LOOPBACK),
            ..OutboundOptions::default()
        })
        .unwrap()
    };
    let not_allowed = "is not public and not among the allowed networks";
    for (client, url, reason) in [
        (public_only(), plain.url(), not_allowed),
        (public_only(), secure.url(), not_allowed),
        (
            public_only(),
            "http://169.254.169.254/latest/".parse().unwrap(),
            not_allowed,
        ),
        (
            loopback_only(),
            secure.url(),
            "the authority of the certificate is not known",
        ),
    ] {
        let delivery = test(&fixture, client, url.as_str()).await;
        assert_eq!(delivery.status, WebhookDeliveryStatus::Failed, "{url}");
        assert_eq!(delivery.response_status, None);
        let error = delivery.error.unwrap();
        assert!(error.contains(reason), "{url}: {error}");
    }
    assert!(plain.requests().is_empty() && secure.requests().is_empty());
}

#[tokio::test]
async fn endpoint_that_is_gone_disables_its_webhook() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Failure(410, "moved away")).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    for _ in 0..5 {
        fixture.start_browser().await;
    }
    tokio::spawn(webhooks.clone().deliver());
    let failed = fixture.deliveries_when(&webhook, |found| {
        let is_failed = |it: &WebhookDeliveryRow| it.status == WebhookDeliveryStatus::Failed;
        found.len() == 5 && found.iter().all(is_failed)
    });
    let failed = failed.await;
    let error = "the webhook is disabled: its endpoint responded 410";
    assert!(failed.iter().all(|it| it.error.as_deref() == Some(error)));
    // Two are sent at once.
    let is_sent = |it: &&WebhookDeliveryRow| it.response_status == Some(410);
    assert_eq!(failed.iter().filter(is_sent).count(), 2);
    assert_eq!(server.requests().len(), 2);
    let found = webhooks.get(webhook.id.as_str()).await.unwrap();
    assert_eq!(found.disabled_reason, Some(WebhookDisabledReason::Gone));
    // Events of that time are not sent.
    fixture.start_browser().await;
    assert_eq!(fixture.deliveries(&webhook).await.len(), 5);
    let enable = parse(json!({"enabled": true}));
    let enabled = webhooks.update(webhook.id.as_str(), enable).await.unwrap();
    assert_eq!(enabled.disabled_reason, None);
    fixture.start_browser().await;
    assert_eq!(fixture.deliveries(&webhook).await.len(), 6);
}

#[tokio::test]
async fn gone_endpoint_of_an_earlier_url_ends_no_delivery() {
    let fixture = Fixture::new().await;
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let old = ScriptedServer::start(move |_| Reply::After(released.clone(), 410)).await;
    let new = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.start(timings());
    let webhook = create(&webhooks, old.url().as_str(), EVENT).await;
    fixture.start_browser().await;
    until(async || (old.requests().len() == 1).then_some(())).await;
    let moved = parse(json!({"url": new.url().as_str(), "secret": SECRET}));
    webhooks.update(webhook.id.as_str(), moved).await.unwrap();
    release.notify_one();
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert_eq!(delivery.attempts, 2);
    assert_eq!((old.requests().len(), new.requests().len()), (1, 1));
    let found = webhooks.get(webhook.id.as_str()).await.unwrap();
    assert_eq!(found.disabled_reason, None);
}

#[tokio::test]
async fn attempt_that_cannot_be_recorded_is_repeated_after_a_delay() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    // Only the delay after the failure leads to another attempt.
    let webhooks = fixture.start(WebhookTimings {
        pass_interval: Duration::from_secs(3600),
        ..timings()
    });
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    fixture.refuse_attempts().await;
    fixture.start_browser().await;
    until(async || (server.requests().len() >= 2).then_some(())).await;
    assert_eq!(fixture.deliveries(&webhook).await[0].attempts, 0);
    fixture.accept_attempts().await;
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert_eq!(delivery.attempts, 1);
    for request in server.requests() {
        assert_eq!(request.headers["berth-delivery"], delivery.id.as_str());
    }
}

#[tokio::test]
async fn gone_endpoint_disables_its_webhook_although_that_attempt_cannot_be_recorded() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Status(410)).await;
    let webhooks = fixture.start(timings());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    fixture.refuse_attempts().await;
    fixture.start_browser().await;
    let failed = WebhookDeliveryStatus::Failed;
    let delivery = fixture.only_delivery(&webhook, failed).await;
    assert_eq!((delivery.attempts, delivery.response_status), (0, None));
    assert_eq!(server.requests().len(), 1);
    let found = webhooks.get(webhook.id.as_str()).await.unwrap();
    assert_eq!(found.disabled_reason, Some(WebhookDisabledReason::Gone));
}

#[tokio::test]
async fn slow_endpoint_delays_no_other_and_gets_two_requests_at_once() {
    let fixture = Fixture::new().await;
    let slow = ScriptedServer::start(|_| Reply::Hang).await;
    let quick = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let waiting = create(&webhooks, slow.url().as_str(), EVENT).await;
    let served = create(&webhooks, quick.url().as_str(), EVENT).await;
    for _ in 0..6 {
        fixture.start_browser().await;
    }
    tokio::spawn(webhooks.deliver());
    let delivered = fixture.deliveries_when(&served, |found| {
        let is_delivered = |it: &WebhookDeliveryRow| it.status == WebhookDeliveryStatus::Delivered;
        found.len() == 6 && found.iter().all(is_delivered)
    });
    delivered.await;
    until(async || (slow.requests().len() == 2).then_some(())).await;
    assert_eq!(quick.requests().len(), 6);
    let pending = fixture.deliveries(&waiting).await;
    assert!(pending.iter().all(|it| it.attempts == 0), "{pending:?}");
}

#[tokio::test]
async fn secret_does_not_sign_for_another_origin() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    let other = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    let id = webhook.id.as_str();
    let moved = json!({"url": other.url().as_str()});
    let error = webhooks.update(id, parse(moved)).await.err();
    assert!(matches!(error, Some(service::WebhookError::SecretRequired)));
    // Also not if the row was changed without the service.
    let changed = WebhookRow {
        url: other.url().to_string(),
        revision: 2,
        ..webhook.clone()
    };
    assert!(fixture.store.update_webhook(&changed).await.unwrap());
    let test = webhooks.test(id).await.unwrap();
    let error = "the secret of the webhook cannot be opened";
    assert_eq!(test.error.as_deref(), Some(error));
    assert!(other.requests().is_empty());
    // Another path of the same origin keeps the secret.
    let below = server.url().join("below").unwrap();
    let changed = WebhookRow {
        url: server.url().to_string(),
        revision: 3,
        ..webhook.clone()
    };
    assert!(fixture.store.update_webhook(&changed).await.unwrap());
    let moved = parse(json!({"url": below.as_str()}));
    webhooks.update(id, moved).await.unwrap();
    let test = webhooks.test(id).await.unwrap();
    assert_eq!(test.status, WebhookDeliveryStatus::Delivered);
    assert_eq!(server.targets(), ["/below"]);
}

#[tokio::test]
async fn number_of_tests_at_once_is_bounded() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Hang).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let webhook = create(&webhooks, server.url().as_str(), EVENT).await;
    let mut tests = tokio::task::JoinSet::new();
    for _ in 0..MAX_TESTS {
        let (webhooks, id) = (webhooks.clone(), webhook.id.to_string());
        tests.spawn(async move { webhooks.test(&id).await.map(|_| ()) });
    }
    until(async || (server.requests().len() == MAX_TESTS).then_some(())).await;
    let error = webhooks.test(webhook.id.as_str()).await.err();
    assert!(matches!(error, Some(service::WebhookError::Busy)));
    drop(tests);
}

#[tokio::test]
async fn delivery_of_a_deleted_webhook_is_deleted() {
    let fixture = Fixture::new().await;
    let webhooks = fixture.service(timings(), loopback_client());
    let webhook = create(&webhooks, "https://hooks.example/", EVENT).await;
    fixture.start_browser().await;
    let recorded = fixture.deliveries(&webhook).await.remove(0);
    webhooks.delete(webhook.id.as_str()).await.unwrap();
    assert!(fixture.deliveries(&webhook).await.is_empty());
    // As if an event was recorded at the same time.
    fixture.store.add_webhook_delivery(&recorded).await.unwrap();
    let due = fixture.store.webhooks_with_due_deliveries(Utc::now());
    assert!(due.await.unwrap().is_empty());
    let trimmed = fixture.store.trim_webhook_deliveries(MAX_RETAINED).await;
    assert_eq!(trimmed.unwrap(), 1);
    assert!(fixture.deliveries(&webhook).await.is_empty());
}
