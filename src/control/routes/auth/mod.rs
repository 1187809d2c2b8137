//! `/auth`.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::control::Control;

mod connections;
mod context;

/// Returns the routes that need no credential.
pub(crate) fn open_router() -> OpenApiRouter<Control> {
    connections::open_router()
}

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(context::get))
        .merge(connections::router())
}
