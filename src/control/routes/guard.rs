//! The guard of all routes that need a credential.
//!
//! A single middleware authenticates a request, applies the limits of its key and records it in the
//! audit log, because each further one would add to the time of every request.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{auditing::Auditing, authentication::authenticate};
use crate::control::Control;

/// The state of the guard.
#[derive(Clone)]
pub struct Guard {
    pub control: Control,
    pub auditing: Auditing,
}

/// Middleware that rejects requests without a valid credential for their route or beyond the limits
/// of their key, and records requests in the audit log.
pub async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let pending = guard.auditing.begin(&mut request);
    let response = authenticate(&guard.control, request, next).await;
    let response = response.unwrap_or_else(IntoResponse::into_response);
    pending.finish(&response);
    response
}
