//! An HTTP client for the agent's requests to control.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::{api::ErrorBody, error_chain::error_chain, system::identity::MAX_CLOCK_SKEW};

/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a response.
const MAX_RESPONSE: usize = 64 << 10;

/// Why a request to control failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlRequestError {
    #[error("control is unreachable: {0}")]
    Unreachable(String),
    #[error("control responded {status}: {message}")]
    Rejected {
        status: StatusCode,
        /// Empty if the response is not in the API's format.
        code: String,
        message: String,
    },
    #[error("control did not respond within {0:?}")]
    Timeout(Duration),
    #[error("invalid response from control: {0}")]
    InvalidResponse(String),
}

/// An HTTP client for one control server.
pub(super) struct ControlClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at the end.
    base_url: String,
}

impl ControlClient {
    /// Returns a client that verifies certificates with the authorities of the system.
    ///
    /// # Errors
    /// Fails if `url` is https and the system has no authorities.
    pub(super) fn new(url: &Url) -> io::Result<ControlClient> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match url.scheme() {
            "https" => builder.with_provider_and_native_roots(default_provider())?,
            // A system without authorities can use http.
            _ => builder.with_tls_config(without_authorities()?),
        };
        let connector = builder.https_or_http().enable_http1().build();
        Ok(ControlClient {
            http: Client::builder(TokioExecutor::new()).build(connector),
            base_url: url.as_str().trim_end_matches('/').to_owned(),
        })
    }

    /// Sends a request and parses the response.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        credential: &SecretString,
        body: &Value,
    ) -> Result<T, ControlRequestError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{path}", self.base_url))
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", credential.expose_secret()),
            )
            .body(Full::from(body.to_string()))
            .map_err(|error| ControlRequestError::Unreachable(error.to_string()))?;
        let exchange = tokio::time::timeout(TIMEOUT, self.exchange(request));
        let exchange = exchange
            .await
            .map_err(|_| ControlRequestError::Timeout(TIMEOUT))?;
        let response = exchange?;
        serde_json::from_slice(&response)
            .map_err(|error| ControlRequestError::InvalidResponse(error.to_string()))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Bytes, ControlRequestError> {
        let response = self.http.request(request).await;
        let response =
            response.map_err(|error| ControlRequestError::Unreachable(error_chain(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect();
        let body = body
            .await
            .map_err(|error| ControlRequestError::InvalidResponse(error.to_string()))?
            .to_bytes();
        if head.status.is_success() {
            return Ok(body);
        }
        let error = serde_json::from_slice::<ErrorBody>(&body);
        let (code, mut message) = error
            .map(|error| (error.code, error.message))
            .unwrap_or_default();
        if let Some(difference) = clock_difference(&head.headers, Utc::now()) {
            message += &format!(" (the clock of this machine is {difference})");
        }
        Err(ControlRequestError::Rejected {
            status: head.status,
            code,
            message,
        })
    }
}

/// Returns by how much the clock of this machine differs from that of control, if it is so much
/// that control refuses tokens.
fn clock_difference(headers: &HeaderMap, now: DateTime<Utc>) -> Option<String> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    let difference = (now - DateTime::parse_from_rfc2822(date).ok()?.to_utc()).num_seconds();
    let seconds = difference.unsigned_abs();
    let direction = if difference > 0 { "ahead of" } else { "behind" };
    (seconds > MAX_CLOCK_SKEW.as_secs()).then(|| format!("{seconds} s {direction} that of control"))
}

/// Returns TLS settings that accept no server.
fn without_authorities() -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = builder.with_root_certificates(RootCertStore::empty());
    Ok(builder.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_the_clocks_is_named_beyond_thirty_seconds() {
        let at = |date: &str| {
            let headers = HeaderMap::from_iter([(header::DATE, date.parse().unwrap())]);
            let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
            clock_difference(&headers, now)
        };
        assert_eq!(at("Fri, 15 Jan 2027 08:00:30 GMT"), None);
        assert_eq!(
            at("Fri, 15 Jan 2027 08:00:31 GMT").as_deref(),
            Some("31 s behind that of control")
        );
        assert_eq!(
            at("Thu, 14 Jan 2027 08:00:00 GMT").as_deref(),
            Some("86400 s ahead of that of control")
        );
        assert_eq!(at("yesterday"), None);
        assert_eq!(clock_difference(&HeaderMap::new(), Utc::now()), None);
    }
}
