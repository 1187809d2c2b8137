//! An attempt at a delivery.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use secrecy::SecretString;
use tokio::time::Instant;
use url::Url;

use super::{Inner, signature::sign};
use crate::{
    api::webhooks::WebhookDeliveryStatus,
    backoff::Backoff,
    control::store::{WebhookAttempt, WebhookDeliveryRow},
    system::outbound::{OutboundError, OutboundPost, OutboundResponse},
};

/// The most attempts at a delivery.
pub(super) const MAX_ATTEMPTS: u32 = 15;
/// The most bytes of a response that are read and retained.
const MAX_RESPONSE: usize = 1024;

const DELIVERY: HeaderName = HeaderName::from_static("berth-delivery");
const EVENT: HeaderName = HeaderName::from_static("berth-event");
const SIGNATURE: HeaderName = HeaderName::from_static("berth-signature");

/// The endpoint of a delivery, and the secret that it knows.
pub(super) struct Endpoint {
    pub(super) url: Url,
    pub(super) secret: SecretString,
}

/// The outcome of an attempt.
pub(super) struct Outcome {
    response: Result<(StatusCode, String), String>,
    duration: Duration,
    ended_at: DateTime<Utc>,
}

impl Inner {
    /// Sends a delivery. `endpoint` is the reason if it cannot be sent.
    pub(super) async fn attempt(
        &self,
        endpoint: Result<&Endpoint, &str>,
        delivery: &WebhookDeliveryRow,
    ) -> Outcome {
        let started = Instant::now();
        let response = match endpoint {
            Ok(endpoint) => self.send(endpoint, delivery).await,
            Err(reason) => Err(reason.to_owned()),
        };
        Outcome {
            response,
            duration: started.elapsed(),
            ended_at: Utc::now(),
        }
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        delivery: &WebhookDeliveryRow,
    ) -> Result<(StatusCode, String), String> {
        let headers = headers(endpoint, delivery, Utc::now())?;
        let sending = self.http.post(OutboundPost {
            url: &endpoint.url,
            headers: &headers,
            body: Bytes::copy_from_slice(delivery.payload.as_bytes()),
            max_bytes: MAX_RESPONSE,
            timeout: self.timings.attempt_timeout,
        });
        let OutboundResponse { status, body, .. } = sending
            .await
            .map_err(|error: OutboundError| error.to_string())?;
        // PostgreSQL stores no NUL.
        let text = String::from_utf8_lossy(&body).replace('\0', "\u{fffd}");
        Ok((status, text))
    }

    /// Returns the delay before the next attempt after `attempts` that failed. `None` if there is
    /// no further one.
    fn retry_delay(&self, attempts: u32) -> Option<TimeDelta> {
        let timings = &self.timings;
        let delays = Backoff::new(timings.first_retry_delay, timings.longest_retry_delay);
        let mut delays = delays.with_jitter();
        let delay = (0..attempts).map(|_| delays.next_delay()).last()?;
        let delay = TimeDelta::from_std(delay).ok()?;
        (attempts < MAX_ATTEMPTS).then_some(delay)
    }

    /// Returns the record of an attempt, with the time of the next one unless it is the last. Also
    /// if the endpoint is gone: the webhook may have another one by now, else it is disabled.
    pub(super) fn record_of(
        &self,
        outcome: Outcome,
        delivery: &WebhookDeliveryRow,
        may_retry: bool,
    ) -> WebhookAttempt {
        let is_delivered = outcome.is_delivered();
        let delay = match is_delivered || !may_retry {
            true => None,
            false => self.retry_delay(delivery.attempts + 1),
        };
        let status = match (is_delivered, delay) {
            (true, _) => WebhookDeliveryStatus::Delivered,
            (false, Some(_)) => WebhookDeliveryStatus::Pending,
            (false, None) => WebhookDeliveryStatus::Failed,
        };
        let error = outcome.error();
        let (response_status, response_body) = match outcome.response {
            Ok((status, body)) => (Some(status.as_u16()), Some(body)),
            Err(_) => (None, None),
        };
        WebhookAttempt {
            status,
            next_attempt_at: delay.map(|delay| outcome.ended_at + delay),
            ended_at: outcome.ended_at,
            duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            response_status,
            response_body,
            error,
        }
    }
}

impl Outcome {
    fn is_delivered(&self) -> bool {
        matches!(&self.response, Ok((status, _)) if status.is_success())
    }

    /// Returns whether the endpoint does not exist any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.response, Ok((StatusCode::GONE, _)))
    }

    /// Returns why the attempt failed.
    fn error(&self) -> Option<String> {
        match &self.response {
            Ok((status, _)) if status.is_success() => None,
            Ok((status, _)) if status.is_redirection() => Some(format!(
                "the endpoint responded {}, and redirects are not followed",
                status.as_u16()
            )),
            Ok((status, _)) => Some(format!("the endpoint responded {}", status.as_u16())),
            Err(error) => Some(error.clone()),
        }
    }
}

fn headers(
    endpoint: &Endpoint,
    delivery: &WebhookDeliveryRow,
    now: DateTime<Utc>,
) -> Result<HeaderMap, String> {
    let body = delivery.payload.as_bytes();
    let signature = sign(&endpoint.secret, now.timestamp(), body);
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    for (name, value) in [
        (DELIVERY, delivery.id.as_str()),
        (EVENT, &delivery.event_type),
        (SIGNATURE, &signature),
    ] {
        let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::webhooks::WebhookTimings;

    #[test]
    fn attempts_take_some_hours() {
        let timings = WebhookTimings::default();
        let mut delays = Backoff::new(timings.first_retry_delay, timings.longest_retry_delay);
        let total: Duration = (1..MAX_ATTEMPTS).map(|_| delays.next_delay()).sum();
        assert_eq!(total.as_secs() / 3600, 8);
    }
}
