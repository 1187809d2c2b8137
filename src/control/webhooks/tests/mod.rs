//! Tests of deliveries, on both databases, against endpoints on loopback.

mod failures;
mod processes;

use chrono::Utc;
use deserr::errors::JsonError;
use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::time::timeout;

use super::*;
use crate::{
    api::{
        ids::{BrowserId, HostId, ProjectId},
        webhooks::WebhookDeliveryStatus,
    },
    control::{
        browsers::state::EndReason,
        secrets::key_ring::KeyRing,
        store::{
            NewBrowserRow, WebhookDeliveryListing, WebhookDeliveryRow, WebhookRow,
            test_database::TestDatabase,
        },
    },
    system::outbound::{
        AddressPolicy, AllowedNetwork, OutboundOptions,
        tests::{
            loopback_client,
            server::{ReceivedRequest, Reply, ScriptedServer},
        },
    },
};

const SECRET: &str = "canary-of-a-webhook-secret";
/// The bound of every wait: long enough for a loaded machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Timings with which a test ends soon.
fn timings() -> WebhookTimings {
    WebhookTimings {
        attempt_timeout: Duration::from_secs(20),
        first_retry_delay: Duration::from_millis(1),
        longest_retry_delay: Duration::from_millis(4),
        claim_timeout: Duration::from_secs(60),
        pass_interval: Duration::from_millis(5),
    }
}

/// A database with a project, and what a service of webhooks needs.
struct Fixture {
    database: TestDatabase,
    store: Store,
    secrets: Secrets,
    project: ProjectId,
    shutdown: Shutdown,
}

impl Fixture {
    async fn new() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let ring = KeyRing::parse(&SecretString::from("1".repeat(64))).unwrap();
        let secrets = Secrets::open(store.clone(), ring).await.unwrap();
        let project = store.default_project("default", Utc::now()).await.unwrap();
        Fixture {
            database,
            store,
            secrets,
            project: project.id,
            shutdown: Shutdown::new(),
        }
    }

    /// Returns a service that makes no deliveries yet, as one process has it.
    fn service(&self, timings: WebhookTimings, http: OutboundClient) -> Webhooks {
        let shutdown = self.shutdown.part();
        Webhooks::with_timings(timings, (http, true), &self.store, &self.secrets, &shutdown)
    }

    /// Returns a service that makes deliveries.
    fn start(&self, timings: WebhookTimings) -> Webhooks {
        let webhooks = self.service(timings, loopback_client());
        tokio::spawn(webhooks.clone().deliver());
        webhooks
    }

    /// Makes the database refuse to record attempts.
    async fn refuse_attempts(&self) {
        let statement = match self.database.postgres {
            None => {
                "CREATE TRIGGER refuse BEFORE UPDATE OF attempts ON webhook_deliveries \
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            }
            Some(_) => {
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql \
                 AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
                 CREATE TRIGGER refuse BEFORE UPDATE OF attempts ON webhook_deliveries \
                 FOR EACH ROW EXECUTE FUNCTION refuse()"
            }
        };
        self.database.execute(statement).await;
    }

    /// Makes the database record attempts again.
    async fn accept_attempts(&self) {
        let statement = match self.database.postgres {
            None => "DROP TRIGGER refuse",
            Some(_) => "DROP FUNCTION refuse CASCADE",
        };
        self.database.execute(statement).await;
    }

    /// Creates a browser, and makes it visible: an event.
    async fn start_browser(&self) -> BrowserId {
        let new = NewBrowserRow::sample(&self.project);
        let row = self.store.create_browser(new, Utc::now()).await.unwrap();
        let host = HostId::generate();
        let published = self.store.publish_browser(&row.id, &host, 1, Utc::now());
        assert!(published.await.unwrap());
        row.id
    }

    async fn deliveries(&self, webhook: &WebhookRow) -> Vec<WebhookDeliveryRow> {
        let listing = WebhookDeliveryListing {
            limit: 100,
            ..WebhookDeliveryListing::default()
        };
        let listed = self.store.list_webhook_deliveries(&webhook.id, listing);
        listed.await.unwrap()
    }

    /// Waits until the deliveries of a webhook fulfil a condition.
    async fn deliveries_when(
        &self,
        webhook: &WebhookRow,
        condition: impl Fn(&[WebhookDeliveryRow]) -> bool,
    ) -> Vec<WebhookDeliveryRow> {
        until(async || {
            let found = self.deliveries(webhook).await;
            condition(&found).then_some(found)
        })
        .await
    }

    /// Waits until there is one delivery with that status.
    async fn only_delivery(
        &self,
        webhook: &WebhookRow,
        status: WebhookDeliveryStatus,
    ) -> WebhookDeliveryRow {
        let found = self.deliveries_when(
            webhook,
            |found| matches!(found, [delivery] if delivery.status == status),
        );
        found.await.remove(0)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// Polls until there is a value.
async fn until<T>(mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let polling = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(2));
        loop {
            ticks.tick().await;
            if let Some(found) = poll().await {
                return found;
            }
        }
    };
    let found = timeout(WAIT_TIMEOUT, polling).await;
    found.expect("the condition is fulfilled in time")
}

fn parse<T: deserr::Deserr<JsonError>>(value: Value) -> T {
    let parsed = deserr::deserialize::<T, _, JsonError>(value);
    parsed.map_err(|error| error.to_string()).unwrap()
}

async fn create(webhooks: &Webhooks, url: &str, events: &[&str]) -> WebhookRow {
    let request = parse(json!({"url": url, "events": events, "secret": SECRET}));
    let created = webhooks.create(request).await;
    created.map_err(|error| error.to_string()).unwrap().0
}

/// Verifies a request by the rules of `docs/webhooks.md`. Returns its body.
fn verify(request: &ReceivedRequest, secret: &str) -> Value {
    let header = request.headers["berth-signature"].to_str().unwrap();
    let (timestamp, signature) = header.split_once(",v1=").unwrap();
    let timestamp = timestamp.strip_prefix("t=").unwrap();
    let age = Utc::now().timestamp() - timestamp.parse::<i64>().unwrap();
    assert!(age.abs() < 300, "{age}");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(&request.body);
    let expected = mac.finalize().into_bytes();
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(bool::from(expected.as_bytes().ct_eq(signature.as_bytes())));
    serde_json::from_slice(&request.body).unwrap()
}

#[tokio::test]
async fn event_is_delivered_with_a_signature_and_recorded() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("thank you\0")).await;
    let webhooks = fixture.start(timings());
    let url = server.url().join("hook?a=b").unwrap();
    let webhook = create(&webhooks, url.as_str(), &["browser.created"]).await;
    let browser = fixture.start_browser().await;
    let delivered = WebhookDeliveryStatus::Delivered;
    let delivery = fixture.only_delivery(&webhook, delivered).await;
    assert_eq!((delivery.attempts, delivery.next_attempt_at), (1, None));
    assert_eq!(delivery.response_status, Some(200));
    assert_eq!(delivery.response_body.unwrap(), "thank you\u{fffd}");
    assert_eq!(delivery.error, None);
    let received = &server.requests()[0];
    assert_eq!(received.target, "/hook?a=b");
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(received.headers["berth-event"], "browser.created");
    assert_eq!(received.headers["berth-delivery"], delivery.id.as_str());
    assert_eq!(received.body, delivery.payload);
    let body = verify(received, SECRET);
    assert_eq!(body["type"], "browser.created");
    assert_eq!(body["project_id"], fixture.project.as_str());
    assert_eq!(body["data"]["session_id"], browser.as_str());
    // Another event, to which it is not subscribed.
    let ended = fixture
        .store
        .withdraw_browser(&browser, EndReason::Idle, Utc::now());
    assert!(ended.await.unwrap());
    assert_eq!(fixture.deliveries(&webhook).await.len(), 1);
}

#[tokio::test]
async fn change_of_the_secret_applies_to_the_next_attempt() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.start(timings());
    let webhook = create(&webhooks, server.url().as_str(), &["browser.created"]).await;
    let rotated = "another-secret-of-it";
    let changes = parse(json!({"secret": rotated, "events": ["browser.ended"]}));
    let changed = webhooks.update(webhook.id.as_str(), changes).await.unwrap();
    assert_eq!((changed.revision, changed.secret_revision), (2, 2));
    let browser = fixture.start_browser().await;
    let store = &fixture.store;
    let closed = store.close_browser(&browser, EndReason::Gone, Utc::now());
    closed.await.unwrap();
    let delivered = WebhookDeliveryStatus::Delivered;
    fixture.only_delivery(&webhook, delivered).await;
    let body = verify(&server.requests()[0], rotated);
    assert_eq!(body["type"], "browser.ended");
    assert_eq!(body["data"]["reason"], "gone");
}

#[tokio::test]
async fn generated_secret_is_random_and_signs() {
    let fixture = Fixture::new().await;
    let server = ScriptedServer::start(|_| Reply::Text("")).await;
    let webhooks = fixture.service(timings(), loopback_client());
    let request = || parse(json!({"url": server.url().as_str(), "events": ["browser.created"]}));
    let (webhook, secret) = webhooks.create(request()).await.unwrap();
    let secret = secret.unwrap();
    assert!(secret.expose_secret().starts_with("whsec_"));
    let (_, other) = webhooks.create(request()).await.unwrap();
    assert_ne!(secret.expose_secret(), other.unwrap().expose_secret());
    let test = webhooks.test(webhook.id.as_str()).await.unwrap();
    assert_eq!(test.status, WebhookDeliveryStatus::Delivered);
    let body = verify(&server.requests()[0], secret.expose_secret());
    assert_eq!(body["type"], "webhook.test");
    assert_eq!(body.get("project_id"), None);
    let recorded = fixture.deliveries(&webhook).await;
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        (&recorded[0].id, recorded[0].status),
        (&test.id, test.status)
    );
}

#[tokio::test]
async fn endpoint_without_tls_needs_an_allowed_network() {
    let fixture = Fixture::new().await;
    let (store, secrets) = (&fixture.store, &fixture.secrets);
    let http = (loopback_client(), false);
    let webhooks = Webhooks::with_timings(timings(), http, store, secrets, &fixture.shutdown);
    let refused = |result: Option<service::WebhookError>| {
        assert!(matches!(result, Some(service::WebhookError::HttpsRequired)));
    };
    let plain = || json!({"url": "http://127.0.0.1/", "events": ["browser.ended"]});
    refused(webhooks.create(parse(plain())).await.err());
    let webhook = create(&webhooks, "https://hooks.example/", &["browser.ended"]).await;
    let id = webhook.id.as_str();
    refused(webhooks.update(id, parse(plain())).await.err());
}

#[tokio::test]
async fn number_of_webhooks_is_bounded() {
    let fixture = Fixture::new().await;
    let webhooks = fixture.service(timings(), loopback_client());
    for _ in 0..service::MAX_WEBHOOKS {
        create(&webhooks, "https://hooks.example/", &["browser.ended"]).await;
    }
    let request = parse(json!({"url": "https://hooks.example/", "events": ["browser.ended"]}));
    let error = webhooks.create(request).await.err();
    assert!(matches!(error, Some(service::WebhookError::TooMany(20))));
}
