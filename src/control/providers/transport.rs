//! GET requests to the API of a provider, with its token.

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, RETRY_AFTER},
};
use secrecy::{ExposeSecret, SecretString, zeroize::Zeroizing};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use super::{ProviderConfig, ProviderError, ProviderTimings, resilience::Resilience};
use crate::system::outbound::{OutboundClient, OutboundRequest, OutboundResponse};

/// The longest base URL in bytes.
const MAX_BASE_URL: usize = 2048;
/// The longest token in bytes.
const MAX_TOKEN: usize = 8192;
/// The most bytes of a response.
pub(super) const MAX_RESPONSE: usize = 4 << 20;
/// The pause after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Checks a URL with which a provider is configured.
///
/// # Errors
/// Returns the rule that it violates.
pub fn check_base_url(url: &Url) -> Result<(), &'static str> {
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must be an http or https URL");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or a password");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or a fragment");
    }
    if url.as_str().len() > MAX_BASE_URL {
        return Err("must have at most 2048 bytes");
    }
    Ok(())
}

/// Checks a token with which a provider is configured.
///
/// # Errors
/// Returns the rule that it violates.
pub fn check_token(token: &SecretString) -> Result<(), &'static str> {
    let token = token.expose_secret();
    if !(1..=MAX_TOKEN).contains(&token.len()) {
        return Err("must have 1 to 8192 bytes");
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable ASCII characters without spaces");
    }
    Ok(())
}

/// A GET request.
#[derive(Clone, Copy)]
pub(super) struct ApiRequest<'a> {
    /// Encoded when they are added to the base URL.
    pub(super) segments: &'a [&'a str],
    pub(super) query: Option<(&'a str, &'a str)>,
    /// Names the content of the response, for errors.
    pub(super) content: &'static str,
}

/// Sends requests to one provider.
pub(super) struct ProviderTransport {
    http: OutboundClient,
    base_url: Url,
    headers: HeaderMap,
    resilience: Resilience,
}

impl ProviderTransport {
    /// Returns the transport of a provider that expects its token in a header, after `prefix`.
    pub(super) fn new(
        config: &ProviderConfig,
        http: &OutboundClient,
        timings: ProviderTimings,
        (header, prefix): (HeaderName, &'static str),
    ) -> Result<ProviderTransport, ProviderError> {
        check_base_url(&config.base_url)
            .map_err(|_| ProviderError::InvalidConfig("base_url is not usable"))?;
        let unusable_token = ProviderError::InvalidConfig("the token cannot be sent in a header");
        check_token(&config.token).map_err(|_| unusable_token.clone())?;
        let token = Zeroizing::new(format!("{prefix}{}", config.token.expose_secret()));
        let mut token = HeaderValue::from_str(&token).map_err(|_| unusable_token)?;
        token.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(header, token);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Ok(ProviderTransport {
            http: http.clone(),
            base_url: config.base_url.clone(),
            headers,
            resilience: Resilience::new(&config.id, timings),
        })
    }

    /// Sends a request, with repetitions, and decodes the response.
    pub(super) async fn get<T: DeserializeOwned + Send>(
        &self,
        request: ApiRequest<'_>,
        deadline: Instant,
    ) -> Result<T, ProviderError> {
        let url = self.url(request)?;
        let url = &url;
        let attempt = |timeout| {
            async move {
                let response = self.http.get(OutboundRequest {
                    url,
                    headers: &self.headers,
                    max_bytes: MAX_RESPONSE,
                    timeout,
                });
                let response = response.await?;
                check_status(&response)?;
                // The text of the error contains parts of the response.
                serde_json::from_slice(&response.body)
                    .map_err(|_| ProviderError::InvalidResponse(request.content))
            }
        };
        self.resilience.run(deadline, attempt).await
    }

    fn url(&self, request: ApiRequest<'_>) -> Result<Url, ProviderError> {
        if !request.segments.iter().all(|segment| is_segment(segment)) {
            return Err(ProviderError::InvalidId);
        }
        let mut url = self.base_url.clone();
        url.path_segments_mut()
            .map_err(|()| ProviderError::InvalidConfig("base_url is not usable"))?
            .pop_if_empty()
            .extend(request.segments);
        if let Some((name, value)) = request.query {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }
}

/// Returns whether a text can be a segment of a path, and nothing else.
pub(super) fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(|c: char| c.is_control() || c == '\\')
}

fn check_status(response: &OutboundResponse) -> Result<(), ProviderError> {
    match response.status {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED => Err(ProviderError::TokenRefused),
        StatusCode::FORBIDDEN => Err(ProviderError::Forbidden),
        StatusCode::NOT_FOUND => Err(ProviderError::NotFound),
        StatusCode::TOO_MANY_REQUESTS => {
            let header = response.headers.get(RETRY_AFTER);
            let retry_after = header.and_then(|value| parse_retry_after(value, Utc::now()));
            let retry_after = retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
            Err(ProviderError::RateLimited { retry_after })
        }
        status if status.is_server_error() => {
            let status = status.as_u16();
            Err(ProviderError::Unavailable { status })
        }
        status => {
            let status = status.as_u16();
            Err(ProviderError::UnexpectedStatus { status })
        }
    }
}

/// Parses a number of seconds or a date.
fn parse_retry_after(value: &HeaderValue, now: DateTime<Utc>) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            (" 120 ", Some(120)),
            ("Tue, 24 Nov 2026 10:00:30 GMT", Some(30)),
            ("Tue, 24 Nov 2026 09:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            let parsed = parse_retry_after(&HeaderValue::from_static(text), now);
            assert_eq!(parsed, expected.map(Duration::from_secs), "{text}");
        }
        let binary = HeaderValue::from_bytes(b"\xff").unwrap();
        assert_eq!(parse_retry_after(&binary, now), None);
    }

    #[test]
    fn base_url_is_checked() {
        for url in [
            "https://vault.example/",
            "http://10.0.0.1:8200/prefix",
            "https://[2606::1]/",
        ] {
            assert_eq!(check_base_url(&url.parse().unwrap()), Ok(()), "{url}");
        }
        let long = format!("https://vault.example/{}", "a".repeat(MAX_BASE_URL));
        for url in [
            "ftp://vault.example/",
            "data:text/plain,a",
            "https://user@vault.example/",
            "https://:secret@vault.example/",
            "https://vault.example/?token=a",
            "https://vault.example/#a",
            &long,
        ] {
            assert!(check_base_url(&url.parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn token_must_fit_in_a_header() {
        let check = |token: &str| check_token(&SecretString::from(token));
        assert_eq!(check("hvs.CAESIJ-_="), Ok(()));
        let long = "t".repeat(MAX_TOKEN + 1);
        for token in ["", "a b", "a\r\nb", "ä", &long] {
            assert!(check(token).is_err(), "{token:?}");
        }
    }

    #[test]
    fn segment_cannot_leave_its_place() {
        for segment in ["a", "a b", "ä", "..a", "%2e%2e", "a/b", "a?b#c"] {
            assert!(is_segment(segment), "{segment}");
        }
        for segment in ["", ".", "..", "a\nb", "a\\b", "\u{0}"] {
            assert!(!is_segment(segment), "{segment:?}");
        }
    }
}
