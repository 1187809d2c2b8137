//! Bearer tokens.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, header::AUTHORIZATION};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    ApiError, ApiResult,
    local_only::{self, Pages},
};

/// Returns the token of `Authorization: Bearer <token>`.
///
/// # Errors
/// Returns 401 if the header is missing, of another scheme or empty.
pub fn bearer_token(headers: &HeaderMap) -> ApiResult<&str> {
    let value = headers.get(AUTHORIZATION).ok_or_else(|| {
        ApiError::unauthorized("missing header: send Authorization: Bearer <key>")
    })?;
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(token.trim())
        }
        _ => Err(ApiError::unauthorized(
            "the Authorization header is not of the form Bearer <key>",
        )),
    }
}

/// The server's bearer token. `None` accepts any local client except cross-site web pages.
#[derive(Clone)]
pub struct StaticToken {
    access: Access,
    pages: Pages,
}

/// The clients that a server accepts.
#[derive(Clone)]
enum Access {
    /// Clients with the token of this digest.
    Token(Arc<[u8; 32]>),
    /// Local clients.
    Local,
    /// All clients, because TLS has authenticated them.
    Tls,
}

impl StaticToken {
    #[must_use]
    pub fn new(token: Option<&SecretString>) -> Self {
        let access = token.map_or(Access::Local, |token| {
            Access::Token(Arc::new(digest(token.expose_secret())))
        });
        Self { access, pages: &[] }
    }

    /// Returns a guard that accepts every client, for servers whose TLS demands a certificate.
    #[must_use]
    pub fn replaced_by_tls() -> Self {
        Self {
            access: Access::Tls,
            pages: &[],
        }
    }

    /// Sets the routes of HTML pages, which other sites may link to if there is no token.
    #[must_use]
    pub fn with_pages(mut self, pages: &'static [&'static str]) -> Self {
        self.pages = pages;
        self
    }

    /// Returns whether `presented` is the token. False if the server has none.
    #[must_use]
    pub fn matches(&self, presented: &str) -> bool {
        // Digests have a fixed length, so the comparison does not reveal the token's length.
        match &self.access {
            Access::Token(expected) => digest(presented).ct_eq(expected.as_ref()).into(),
            Access::Local | Access::Tls => false,
        }
    }

    fn check<B>(&self, request: &http::Request<B>) -> ApiResult<()> {
        match &self.access {
            Access::Tls => Ok(()),
            Access::Local => local_only::check(request, self.pages),
            Access::Token(_) => match self.matches(bearer_token(request.headers())?) {
                true => Ok(()),
                false => Err(ApiError::unauthorized("invalid token")),
            },
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Middleware that rejects requests without the token.
pub async fn require_static_token(
    State(token): State<StaticToken>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    token.check(&request)?;
    Ok(next.run(request).await)
}
