//! The routes of control. The directories repeat the URL tree.

use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::auth::SESSION_PARAMETER;
use super::Control;
use crate::http::{ApiInfo, SessionRoutes};

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
    bearer: "An API key, such as `berth_…`",
    // The headers that select a project can be malformed, or name one without access.
    guard_errors: &[400, 403, 404],
    session_routes: Some(SessionRoutes {
        prefix: "/browsers/{id}/",
        parameter: SESSION_PARAMETER,
        description: "The token in a browser's own URLs. That of `cdp_ws_url` is valid for all routes of the browser, that of a live view or of a replay only for it. `Authorization` takes precedence.",
    }),
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
