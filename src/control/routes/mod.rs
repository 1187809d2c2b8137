//! The routes of control. The directories repeat the URL tree.

use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::Control;
use crate::http::ApiInfo;

pub mod auth;
mod browsers;
mod health;
mod idempotency;
mod org;
mod paged;
pub mod public_base_url;

/// The title and the introduction of the OpenAPI document.
pub const API_INFO: ApiInfo = ApiInfo {
    title: "Berth control",
    description: include_str!("introduction.md"),
};

/// Returns the routes that need no credential.
pub fn open() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(health::health))
}

/// Returns the routes that need a credential. `agent` is the OpenAPI document of the routes that
/// are forwarded to agents.
pub fn guarded(agent: OpenApi) -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(auth::router())
        .merge(browsers::router(agent))
        .merge(org::router())
}
