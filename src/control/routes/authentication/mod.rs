//! The authentication of every route that needs a credential.

mod host;
mod metrics;
mod principal;
mod project;

pub(super) use host::{AuthenticatedHost, AuthenticatedRegistrant, HostRoute};
pub(super) use principal::authenticate;
pub use principal::{Principal, RequestCredential, SESSION_PARAMETER, token_in};
