//! `/auth`, and the authentication of every route that needs a credential.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::control::Control;

mod context;
mod host;
mod metrics;
mod principal;
mod project;

pub(super) use host::{AuthenticatedHost, AuthenticatedRegistrant, HostRoute};
pub(super) use principal::authenticate;
pub use principal::{Principal, RequestCredential, SESSION_PARAMETER, token_in};

pub fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(context::get))
}
