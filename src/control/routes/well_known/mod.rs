//! `/.well-known`.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::control::Control;

mod jwks;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(jwks::get))
}
