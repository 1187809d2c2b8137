//! An endpoint that receives events, and verifies their signatures.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use chrono::Utc;
use hmac::{Hmac, Mac};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, task::JoinHandle};

use super::wait::until;

/// The greatest difference between the clocks of both sides, in seconds.
const TOLERANCE: i64 = 300;

/// A request with a valid signature.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    pub delivery: String,
    pub signature: String,
    pub bytes: Bytes,
    pub body: Value,
}

/// The endpoint, until it is dropped.
pub struct WebhookReceiver {
    pub url: String,
    state: Arc<ReceiverState>,
    task: JoinHandle<()>,
}

struct ReceiverState {
    secret: Mutex<String>,
    /// The status of responses to valid requests.
    status: AtomicU16,
    received: Mutex<Vec<ReceivedEvent>>,
}

impl WebhookReceiver {
    /// Starts an endpoint that accepts requests which are signed with a secret.
    pub async fn start(secret: &str) -> WebhookReceiver {
        let state = Arc::new(ReceiverState {
            secret: Mutex::new(secret.to_owned()),
            status: AtomicU16::new(204),
            received: Mutex::default(),
        });
        let router = Router::new()
            .route("/hook", post(receive))
            .with_state(state.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        WebhookReceiver { url, state, task }
    }

    /// Accepts another secret from now on.
    pub fn set_secret(&self, secret: &str) {
        secret.clone_into(&mut self.state.secret.lock());
    }

    /// Responds to valid requests with a status from now on.
    pub fn respond_with(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// Returns the valid requests, in the order of their arrival.
    pub fn received(&self) -> Vec<ReceivedEvent> {
        self.state.received.lock().clone()
    }

    /// Waits until a valid request has an event of that type. Returns it.
    pub async fn event(&self, event_type: &str) -> ReceivedEvent {
        until(event_type, async || {
            let mut received = self.received().into_iter();
            received.find(|it| it.body["type"] == event_type)
        })
        .await
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(
    State(state): State<Arc<ReceiverState>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> StatusCode {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let signature = header("berth-signature");
    if !verify(&bytes, &signature, &state.secret.lock()) {
        return StatusCode::UNAUTHORIZED;
    }
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(body["type"], header("berth-event"));
    state.received.lock().push(ReceivedEvent {
        delivery: header("berth-delivery"),
        signature,
        bytes,
        body,
    });
    StatusCode::from_u16(state.status.load(Ordering::SeqCst)).unwrap()
}

/// Returns the signature of a body at a time.
pub fn sign(body: &[u8], timestamp: i64, secret: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{timestamp}.").as_bytes());
    mac.update(body);
    let digest = mac.finalize().into_bytes();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={timestamp},v1={hex}")
}

/// Verifies a request by the rules of `docs/webhooks.md`.
fn verify(body: &[u8], signature: &str, secret: &str) -> bool {
    let timestamp = signature
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(','))
        .and_then(|(timestamp, _)| timestamp.parse().ok());
    timestamp.is_some_and(|timestamp: i64| {
        let expected = sign(body, timestamp, secret);
        let is_recent = (Utc::now().timestamp() - timestamp).abs() <= TOLERANCE;
        is_recent && bool::from(expected.as_bytes().ct_eq(signature.as_bytes()))
    })
}
