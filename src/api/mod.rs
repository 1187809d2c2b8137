//! The wire types: requests, responses, events and ids of both servers.
//!
//! Requests derive or implement `Deserr` with their bounds as types, so that a decoded request is
//! valid and all invalid fields are reported at once; responses implement `Serialize`. The doc
//! comments of schemas are the descriptions in the OpenAPI document. This module imports no other
//! module of this crate.

pub mod agent;
pub mod api_keys;
pub mod audit_logs;
pub mod auth;
pub mod auth_connections;
pub mod auth_flow;
pub mod automation;
mod binary;
pub mod browsers;
pub mod clipboard;
pub mod computer;
pub mod credential_fill;
pub mod credential_providers;
pub mod credentials;
pub mod devtools;
mod error;
pub(crate) mod field;
pub mod fill;
pub mod fleet;
pub mod fs;
pub mod groups;
pub mod identity_providers;
pub mod ids;
pub mod jwks;
pub mod keys;
pub mod limits;
pub mod live;
pub mod login_page;
pub mod login_theme;
pub mod logs;
pub mod name;
pub mod paging;
pub mod pools;
pub mod process;
pub mod profiles;
pub mod projects;
pub mod public_suffix;
pub mod replays;
pub mod screenshot;
pub mod secret_text;
pub mod session;
pub mod start_url;
pub mod suspend;
pub mod time;
mod totp;
pub mod viewport;
pub mod webhooks;

pub use binary::Binary;
pub use error::{ErrorBody, ErrorDetail};
