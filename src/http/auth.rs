//! Bearer tokens.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{ApiError, ApiResult, local_only};

/// The token of `Authorization: Bearer <token>`.
///
/// # Errors
/// 401 where the header is missing, of another scheme or empty.
pub fn bearer(headers: &HeaderMap) -> ApiResult<&str> {
    let value = headers
        .get(AUTHORIZATION)
        .ok_or_else(|| ApiError::unauthorized("send your key as Authorization: Bearer <key>"))?;
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(token.trim())
        }
        _ => Err(ApiError::unauthorized(
            "the Authorization header is not a bearer token",
        )),
    }
}

/// The one token a server takes, or none where it takes everyone on its machine but the pages they have open.
#[derive(Clone)]
pub struct StaticToken(Option<Arc<[u8; 32]>>);

impl StaticToken {
    #[must_use]
    pub fn new(token: Option<&SecretString>) -> Self {
        Self(token.map(|token| Arc::new(digest(token.expose_secret()))))
    }

    fn check(&self, headers: &HeaderMap) -> ApiResult<()> {
        let Some(expected) = &self.0 else {
            return local_only::check(headers);
        };
        // Digests have one length, so the comparison tells nothing of the token's.
        if bool::from(digest(bearer(headers)?).ct_eq(expected.as_ref())) {
            Ok(())
        } else {
            Err(ApiError::unauthorized("the token is not valid"))
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Middleware: nothing passes without the token.
pub async fn require_static_token(
    State(token): State<StaticToken>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    token.check(request.headers())?;
    Ok(next.run(request).await)
}
