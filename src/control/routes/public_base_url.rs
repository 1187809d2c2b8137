//! Where the client base_url this server: what the URLs in answers begin with.

use axum::extract::FromRequestParts;
use http::{header::HOST, request::Parts, uri::Authority};

use crate::{api::ids::BrowserId, control::Control, http::ApiError};

/// The server's base URL as this client knows it, without a slash at its end.
#[derive(Debug, Clone)]
pub struct PublicBaseUrl(String);

impl PublicBaseUrl {
    /// A browser's own base URL.
    pub fn browser(&self, id: &BrowserId) -> String {
        format!("{}/browsers/{id}", self.0)
    }

    /// A page of a browser's, opened by the token in the URL.
    pub fn page(&self, id: &BrowserId, path: &str, token: &str) -> String {
        format!("{}{path}?jwt={token}", self.browser(id))
    }

    /// A browser's DevTools, opened by the token in the URL.
    pub fn cdp(&self, id: &BrowserId, token: &str) -> String {
        self.websocket(id, "/cdp", token)
    }

    /// A WebSocket of a browser's, opened by the token in the URL.
    pub fn websocket(&self, id: &BrowserId, path: &str, token: &str) -> String {
        // `http` becomes `ws`, `https` becomes `wss`.
        let rest = self.0.strip_prefix("http").unwrap_or(&self.0);
        format!("ws{rest}/browsers/{id}{path}?jwt={token}")
    }
}

impl FromRequestParts<Control> for PublicBaseUrl {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, control: &Control) -> Result<Self, ApiError> {
        if let Some(url) = &control.public_url {
            return Ok(PublicBaseUrl(url.as_str().trim_end_matches('/').to_owned()));
        }
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        Ok(PublicBaseUrl(match host {
            Some(host) => format!("http://{host}"),
            None => format!("http://{}", control.address),
        }))
    }
}
