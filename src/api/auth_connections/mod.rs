//! Auth connections: the login of a profile to a site.

mod login;
mod record;
mod requests;
mod timeline;
mod values;

pub use login::{
    AuthConnectionFlow, BeginAuthLogin, BegunAuthLogin, ExchangeHandoffCode, ExchangedToken,
    SubmitAccepted,
};
pub use record::{AuthConnection, AuthConnectionStatus, ReauthReason};
pub use requests::{CreateAuthConnection, ListAuthConnections, UpdateAuthConnection};
pub use timeline::{AuthEventStatus, AuthEventType, AuthTimelineEvent, ListAuthTimeline};
pub use values::{
    AllowedDomains, ConnectionCredential, ConnectionCredentialFields, FieldChange,
    HealthCheckInterval, LoginUrl, MIN_HEALTH_CHECK_INTERVAL,
};
