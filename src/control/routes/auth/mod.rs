//! `/auth`.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::control::Control;

mod connections;
mod context;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(context::get))
        .merge(connections::router())
}
