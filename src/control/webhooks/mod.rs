//! Webhooks: endpoints of customers that receive events, at least once.
//!
//! ```text
//! state change ── one transaction ──▶ webhook_deliveries (store)
//!                                          │ due
//!                                          ▼
//!                    Webhooks::deliver: one queue per webhook, claimed by one process
//!                                          │
//!                                          ▼
//!                    OutboundClient: address policy, bounds, no redirects
//! ```
//!
//! - [`service`]: creates, changes and deletes webhooks.
//! - [`queue`]: finds due deliveries, and makes them.
//! - [`attempt`]: one request, and its outcome. [`signature`]: its signature.
//!
//! See `docs/webhooks.md`. An event is declared in [`crate::api::webhooks`] and recorded by the
//! store, in the transaction of the change that it is about.

mod attempt;
mod queue;
pub mod service;
mod signature;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use ulid::Ulid;

use super::{providers::settings::ProviderSettingsConfig, secrets::Secrets, store::Store};
use crate::{api::ids::WebhookId, shutdown::Shutdown, system::outbound::OutboundClient};

/// The most deliveries of a webhook that have ended and are retained.
pub const MAX_RETAINED: u64 = 10_000;
/// The most tests at once.
const MAX_TESTS: usize = 8;

/// The times of deliveries.
#[derive(Debug, Clone, Copy)]
pub struct WebhookTimings {
    /// The time for one attempt.
    pub attempt_timeout: Duration,
    /// The delay before the second attempt. It doubles, and a random part of it is added.
    pub first_retry_delay: Duration,
    pub longest_retry_delay: Duration,
    /// The time after which another process may deliver to the webhooks of one that does not
    /// respond: longer than an attempt.
    pub claim_timeout: Duration,
    /// The time between two searches for due deliveries.
    pub pass_interval: Duration,
}

impl Default for WebhookTimings {
    fn default() -> Self {
        WebhookTimings {
            attempt_timeout: Duration::from_secs(10),
            first_retry_delay: Duration::from_secs(5),
            longest_retry_delay: Duration::from_secs(2 * 60 * 60),
            claim_timeout: Duration::from_secs(30),
            pass_interval: Duration::from_secs(2),
        }
    }
}

/// The webhook service. Clones share its state.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    secrets: Secrets,
    http: OutboundClient,
    /// Whether an endpoint may have no TLS, because the settings allow networks.
    allows_http: bool,
    timings: WebhookTimings,
    shutdown: Shutdown,
    /// Names this service in claims.
    holder: String,
    /// The webhooks that this service delivers to now.
    active: Mutex<HashSet<WebhookId>>,
    /// Notified when the work on a queue has ended, which may have a new delivery already.
    queue_ended: Notify,
    tests: Semaphore,
}

impl Webhooks {
    /// Returns the service, which sends its requests with a client.
    pub fn new(
        config: &ProviderSettingsConfig,
        http: OutboundClient,
        store: &Store,
        secrets: &Secrets,
        shutdown: &Shutdown,
    ) -> Webhooks {
        let allows_http = !config.allowed_networks.is_empty();
        let timings = WebhookTimings::default();
        Webhooks::with_timings(timings, (http, allows_http), store, secrets, shutdown)
    }

    fn with_timings(
        timings: WebhookTimings,
        (http, allows_http): (OutboundClient, bool),
        store: &Store,
        secrets: &Secrets,
        shutdown: &Shutdown,
    ) -> Webhooks {
        Webhooks {
            inner: Arc::new(Inner {
                store: store.clone(),
                secrets: secrets.clone(),
                http,
                allows_http,
                timings,
                shutdown: shutdown.clone(),
                holder: Ulid::generate().to_string(),
                active: Mutex::default(),
                queue_ended: Notify::new(),
                tests: Semaphore::new(MAX_TESTS),
            }),
        }
    }
}
