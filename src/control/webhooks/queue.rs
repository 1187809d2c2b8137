//! Makes the deliveries that are due.
//!
//! Each webhook has a queue of its own, so that a slow endpoint delays no other one. One process at
//! a time works on a queue, and sends up to [`CONCURRENCY`] deliveries at once. With the limit on
//! the number of webhooks, this bounds the requests at once.

use std::{sync::Arc, time::Duration};

use chrono::{TimeDelta, Utc};
use futures::future::join_all;

use super::{Inner, Webhooks, attempt::Endpoint};
use crate::{
    api::{
        ids::WebhookId,
        webhooks::{WebhookDeliveryStatus, WebhookDisabledReason},
    },
    backoff::Backoff,
    control::store::{StoreError, WebhookAttempt, WebhookClaim, WebhookDeliveryRow, WebhookRow},
};

/// The most deliveries to one webhook at once.
const CONCURRENCY: u64 = 2;
/// The time that attempts in progress have at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest delay after a failure of the database, without the random part.
const MAX_STORE_DELAY: Duration = Duration::from_secs(5 * 60);

impl Webhooks {
    /// Makes deliveries when they are due, until shutdown.
    pub async fn deliver(self) {
        let Inner {
            store,
            shutdown,
            timings,
            ..
        } = &*self.inner;
        while !shutdown.is_requested() {
            if let Err(error) = self.start_queues().await {
                tracing::error!(%error, "cannot find the due deliveries of webhooks");
            }
            tokio::select! {
                () = store.deliveries_recorded() => {}
                () = self.inner.queue_ended.notified() => {}
                _ = shutdown.sleep(timings.pass_interval) => {}
            }
        }
    }

    /// Starts to work on the queues that have due deliveries.
    async fn start_queues(&self) -> Result<(), StoreError> {
        let Self { inner } = self;
        for id in inner.store.webhooks_with_due_deliveries(Utc::now()).await? {
            if !inner.active.lock().insert(id.clone()) {
                continue;
            }
            let queue = inner.clone();
            inner
                .shutdown
                .spawn(async move { queue.work_on(&id).await });
        }
        Ok(())
    }
}

impl Inner {
    /// Works on a queue until nothing is due. After a failure of the database it waits, because
    /// attempts that were not recorded are made again.
    async fn work_on(self: Arc<Self>, id: &WebhookId) {
        let delays = Backoff::new(self.timings.first_retry_delay, MAX_STORE_DELAY);
        let mut delays = delays.with_jitter();
        let has_worked = loop {
            let worked = self.drain(id).await;
            self.release(id).await;
            match worked {
                Ok(has_worked) => break has_worked,
                Err(error) => {
                    tracing::error!(webhook = %id, %error, "cannot deliver to a webhook yet");
                }
            }
            if !self.shutdown.sleep(delays.next_delay()).await {
                break false;
            }
        };
        self.active.lock().remove(id);
        if has_worked {
            self.queue_ended.notify_one();
        }
    }

    async fn release(&self, id: &WebhookId) {
        if let Err(error) = self.store.release_webhook(id, &self.holder).await {
            tracing::warn!(webhook = %id, %error, "cannot release a webhook before its claim ends");
        }
    }

    /// Makes all deliveries of a webhook that are due. Returns whether there were any.
    async fn drain(&self, id: &WebhookId) -> Result<bool, StoreError> {
        let mut has_worked = false;
        let claim_timeout = TimeDelta::from_std(self.timings.claim_timeout);
        let claim_timeout = claim_timeout.unwrap_or(TimeDelta::MAX);
        while !self.shutdown.is_requested() {
            let now = Utc::now();
            let until = now + claim_timeout;
            let claiming = self.store.claim_webhook(id, &self.holder, now, until);
            let webhook = match claiming.await? {
                WebhookClaim::Claimed(webhook) => webhook,
                WebhookClaim::Held | WebhookClaim::NotFound => return Ok(false),
                WebhookClaim::Disabled(reason) => {
                    let store = &self.store;
                    store
                        .fail_deliveries_of_disabled_webhook(id, reason)
                        .await?;
                    return Ok(false);
                }
            };
            let due = self.store.due_webhook_deliveries(id, now, CONCURRENCY);
            let due = due.await?;
            if due.is_empty() {
                break;
            }
            has_worked = true;
            let endpoint = self.endpoint(&webhook).await;
            let endpoint = endpoint.as_ref().map_err(String::as_str);
            let making = due
                .iter()
                .map(|delivery| self.make(endpoint, &webhook, delivery));
            let (are_gone, recorded): (Vec<bool>, Vec<_>) =
                join_all(making).await.into_iter().unzip();
            if are_gone.contains(&true) {
                self.disable(&webhook).await?;
            }
            recorded.into_iter().collect::<Result<(), StoreError>>()?;
        }
        Ok(has_worked)
    }

    /// Makes an attempt at a delivery, and records it. At a shutdown it may be given up, and then
    /// counts as not made. Returns whether the endpoint is gone, also if that cannot be recorded.
    async fn make(
        &self,
        endpoint: Result<&Endpoint, &str>,
        webhook: &WebhookRow,
        delivery: &WebhookDeliveryRow,
    ) -> (bool, Result<(), StoreError>) {
        let timeout = self.timings.attempt_timeout * 2;
        let outcome = tokio::select! {
            outcome = self.attempt(endpoint, delivery) => outcome,
            () = self.shutdown.timeout_or_deadline(timeout, SHUTDOWN_TIMEOUT) => {
                return (false, Ok(()));
            }
        };
        let is_gone = outcome.is_gone();
        let attempt = self.record_of(outcome, delivery, true);
        (is_gone, self.record(webhook, delivery, &attempt).await)
    }

    async fn record(
        &self,
        webhook: &WebhookRow,
        delivery: &WebhookDeliveryRow,
        attempt: &WebhookAttempt,
    ) -> Result<(), StoreError> {
        let (id, status) = (&delivery.id, attempt.response_status);
        match (attempt.status, &attempt.error) {
            (WebhookDeliveryStatus::Failed, Some(error)) => {
                tracing::warn!(webhook = %webhook.id, delivery = %id, error, "delivery failed");
            }
            (_, error) => tracing::debug!(delivery = %id, status, error, "attempt at a delivery"),
        }
        if self.store.record_webhook_attempt(delivery, attempt).await? {
            let outcome = match attempt.status {
                WebhookDeliveryStatus::Pending => "retried",
                ended => ended.as_str(),
            };
            metrics::counter!("berth_webhook_deliveries_total", "outcome" => outcome).increment(1);
        }
        Ok(())
    }

    /// Disables a webhook whose endpoint is gone, and ends its deliveries, unless it was changed
    /// meanwhile.
    async fn disable(&self, webhook: &WebhookRow) -> Result<(), StoreError> {
        let disabled = WebhookRow {
            disabled_reason: Some(WebhookDisabledReason::Gone),
            revision: webhook.revision + 1,
            updated_at: Utc::now(),
            ..webhook.clone()
        };
        if self.store.update_webhook(&disabled).await? {
            tracing::warn!(webhook = %webhook.id, "disabled a webhook: its endpoint is gone");
        }
        Ok(())
    }
}
