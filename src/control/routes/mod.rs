//! Control's routes; the folders repeat the URL tree.

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

pub const API_INFO: ApiInfo = ApiInfo {
    title: "Berth control",
    description: include_str!("introduction.md"),
};

/// The routes anyone may ask.
pub fn open() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(health::health))
}

/// The routes behind the guard; `agent` documents those that are passed on.
pub fn guarded(agent: OpenApi) -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(auth::router())
        .merge(browsers::router(agent))
        .merge(org::router())
}
