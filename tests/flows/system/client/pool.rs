//! The part of a client that uses a pool. A session that is acquired from it is one like any other.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{Client, LONG_IDLE_TIMEOUT, Session, failed, send};
use crate::flows::system::history::{Operation, Outcome};

/// The pool that all clients share.
pub const POOL: &str = "/browser_pools/shared";
/// The most browsers of the pool.
const MAX_SIZE: usize = 2;
/// The longest wait for a browser of the pool.
const MAX_WAIT: usize = 3;

impl Client {
    /// Acquires a session from the pool, which is created if it is missing.
    pub(super) async fn acquire(&mut self) {
        let name = self.new_name();
        let lease = json!({
            "name": name, "acquire_timeout_seconds": self.random.below(MAX_WAIT),
        });
        let request = self.request(Method::POST, &format!("{POOL}/acquire")).await;
        let operation = Operation::Create {
            name: name.clone(),
            idle_timeout: LONG_IDLE_TIMEOUT,
        };
        let patience = self.patience();
        let mut found = None;
        let mut is_missing = false;
        let acquiring = async {
            match send(request.json(&lease)).await {
                Ok((StatusCode::NO_CONTENT, _)) => Outcome::Refused(204),
                // Also if it is deleted while the client waits.
                Ok((StatusCode::NOT_FOUND, _)) => {
                    is_missing = true;
                    Outcome::Refused(404)
                }
                Ok((status, body)) => failed(status, &body).unwrap_or_else(|| {
                    let mut session = Session::of(&body, true);
                    session.is_pooled = true;
                    let id = session.id.clone();
                    found = Some(session);
                    Outcome::Session(id)
                }),
                Err(failure) => failure.into(),
            }
        };
        let client = (self.number, self.project);
        let call = self.recorder.call(client, operation, acquiring);
        let outcome = match patience {
            Some(limit) => tokio::time::timeout(limit, call).await.ok(),
            None => Some(call.await),
        };
        self.session = found;
        if is_missing {
            self.create_pool().await;
        } else if outcome.is_none_or(|outcome| outcome == Outcome::Unknown) {
            self.find(name).await;
        }
    }

    /// Releases a session to its pool. Without a definite outcome, the client uses it further.
    pub(super) async fn release(&mut self, session: Session) {
        let request = self.request(Method::POST, &format!("{POOL}/release")).await;
        let body = json!({"session_id": session.id, "reuse": !self.random.one_in(8)});
        let operation = Operation::Delete {
            session: session.id.clone(),
        };
        let patience = self.patience();
        let releasing = async {
            match send(request.json(&body)).await {
                // It has ended, and perhaps its pool is deleted.
                Ok((StatusCode::CONFLICT | StatusCode::NOT_FOUND, _)) => Outcome::NotFound,
                Ok((status, body)) => failed(status, &body).unwrap_or(Outcome::Done),
                Err(failure) => failure.into(),
            }
        };
        let client = (self.number, self.project);
        let call = self.recorder.call(client, operation, releasing);
        let outcome = match patience {
            Some(limit) => tokio::time::timeout(limit, call)
                .await
                .unwrap_or(Outcome::Unknown),
            None => call.await,
        };
        match outcome {
            Outcome::Done | Outcome::NotFound => self.ended = Some(session),
            _ => self.session = Some(session),
        }
    }

    /// Flushes, resizes, changes or deletes the pool, which ends no session of a client.
    pub(super) async fn disturb_pool(&mut self) {
        let size = self.random.below(MAX_SIZE + 1);
        let (method, route, body) = match self.random.below(6) {
            0 | 1 => (Method::POST, "/flush", json!({})),
            2 | 3 => (Method::PATCH, "", json!({"size": size})),
            4 => {
                let url = format!("data:text/html,{size}");
                (Method::PATCH, "", json!({"start_url": url}))
            }
            _ => (Method::DELETE, "", json!({})),
        };
        let path = format!("{POOL}{route}");
        let request = self.request(method, &path).await;
        // Whatever has become of it: the next use of the pool shows.
        let _ = send(request.json(&body)).await;
    }

    /// Gives up all idle browsers of the pool.
    pub async fn empty_pool(&mut self) {
        for _ in 0..100 {
            let request = self.request(Method::PATCH, POOL).await;
            let emptied = send(request.json(&json!({"size": 0}))).await;
            if let Ok((StatusCode::OK | StatusCode::NOT_FOUND, _)) = emptied {
                return;
            }
        }
        panic!("the pool is not emptied");
    }

    async fn create_pool(&mut self) {
        let settings = json!({
            "name": "shared",
            "size": MAX_SIZE,
            "headless": true,
            "timeout_seconds": LONG_IDLE_TIMEOUT.as_secs(),
            "fill_rate_per_minute": 10_000,
        });
        let request = self.request(Method::POST, "/browser_pools").await;
        // Refused if another client is faster, or the limit of sessions is reached.
        let _ = send(request.json(&settings)).await;
        self.pause = self.random.below(super::MAX_PAUSE);
    }
}
