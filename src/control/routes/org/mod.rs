//! `/org`.

use utoipa_axum::router::OpenApiRouter;

use crate::control::Control;

mod api_keys;
mod projects;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(api_keys::router())
        .merge(projects::router())
}
