//! The base URL at which a client reached this server. URLs in responses start with it.

use axum::extract::FromRequestParts;
use http::{header::HOST, request::Parts, uri::Authority};

use crate::{
    api::ids::{AuthConnectionId, BrowserId},
    control::Control,
    http::ApiError,
};

/// The server's base URL as the client knows it, without a trailing slash.
#[derive(Debug, Clone)]
pub struct PublicBaseUrl(String);

impl PublicBaseUrl {
    /// Returns the base URL of a browser.
    pub fn browser(&self, id: &BrowserId) -> String {
        format!("{}/browsers/{id}", self.0)
    }

    /// Returns the URL of a page of a browser, with a session token.
    pub fn page(&self, id: &BrowserId, path: &str, token: &str) -> String {
        format!("{}{path}?jwt={token}", self.browser(id))
    }

    /// Returns the URL of the hosted login page of a connection.
    pub fn login_page(&self, id: &AuthConnectionId) -> String {
        format!("{}/login/{id}", self.0)
    }

    /// Returns the URL of a browser's DevTools, with a session token.
    pub fn cdp(&self, id: &BrowserId, token: &str) -> String {
        self.websocket(id, "/cdp", token)
    }

    /// Returns the URL of a WebSocket of a browser, with a session token.
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
