//! Control's routes; the folders repeat the URL tree.

use utoipa_axum::{router::OpenApiRouter, routes};

use super::Control;

mod auth;
mod browsers;
pub mod guard;
mod health;
mod idempotency;
mod org;
mod paged;
pub mod reached;

/// The routes anyone may ask.
pub fn open() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(health::health))
}

/// The routes behind the guard.
pub fn guarded() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(auth::router())
        .merge(browsers::router())
        .merge(org::router())
}
