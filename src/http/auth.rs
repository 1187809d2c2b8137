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
    digest: Option<Arc<[u8; 32]>>,
    pages: Pages,
}

impl StaticToken {
    #[must_use]
    pub fn new(token: Option<&SecretString>) -> Self {
        Self {
            digest: token.map(|token| Arc::new(digest(token.expose_secret()))),
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
        self.digest
            .as_ref()
            .is_some_and(|expected| digest(presented).ct_eq(expected.as_ref()).into())
    }

    fn check<B>(&self, request: &http::Request<B>) -> ApiResult<()> {
        if self.digest.is_none() {
            return local_only::check(request, self.pages);
        }
        match self.matches(bearer_token(request.headers())?) {
            true => Ok(()),
            false => Err(ApiError::unauthorized("invalid token")),
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
