//! The authentication of every route that needs a credential.

mod flow_token;
mod host;
mod metrics;
mod principal;
mod project;

pub use flow_token::FLOW_OPERATIONS;
pub(super) use flow_token::{bearer_flow_token, is_flow_path};
pub(super) use host::{AuthenticatedHost, AuthenticatedRegistrant, HostRoute};
pub(super) use principal::authenticate;
pub use principal::{Principal, RequestCredential, SESSION_PARAMETER, token_in};
