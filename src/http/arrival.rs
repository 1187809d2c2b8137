//! The time at which a request arrived.

use std::{convert::Infallible, time::Instant};

use axum::extract::FromRequestParts;
use http::request::Parts;

/// The time at which the server began with a request. A client counts its waiting time from about
/// then, not from when its credential was checked.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedAt(pub Instant);

impl<S: Send + Sync> FromRequestParts<S> for ArrivedAt {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<ArrivedAt>().copied();
        Ok(known.unwrap_or_else(|| ArrivedAt(Instant::now())))
    }
}
