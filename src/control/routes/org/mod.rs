//! `/org`.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::control::Control;

mod api_keys;
pub(super) mod credential_providers;
mod limits;
mod projects;
mod webhooks;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(limits::get, limits::update))
        .merge(api_keys::router())
        .merge(credential_providers::router())
        .merge(projects::router())
        .merge(webhooks::router())
}
