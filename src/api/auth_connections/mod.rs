//! Auth connections: the login of a profile to a site.

mod record;
mod requests;
mod values;

pub use record::{AuthConnection, AuthConnectionStatus, ReauthReason};
pub use requests::{CreateAuthConnection, ListAuthConnections, UpdateAuthConnection};
pub use values::{
    AllowedDomains, ConnectionCredential, ConnectionCredentialFields, FieldChange,
    HealthCheckInterval, LoginUrl, MIN_HEALTH_CHECK_INTERVAL,
};
