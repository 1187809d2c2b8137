//! The reasons why a login flow ends without success.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FlowStatus;

/// The reason why a login flow has ended without success, or why a health check has not found the
/// profile logged in.
///
/// - `canceled`: a request has canceled the flow.
/// - `flow_expired`: the flow took 20 minutes.
/// - `input_timeout`: the person did not act within 10 minutes.
/// - `browser_not_started`: no browser was available in time.
/// - `browser_lost`: the browser has crashed or was deleted.
/// - `browser_timeout`: the browser did not respond in time.
/// - `controller_lost`: the server that ran the flow has stopped, and no other could continue it.
/// - `login_page_not_found`: no login page was found on the domain.
/// - `site_unavailable`: the site could not be loaded.
/// - `site_timeout`: the site did not respond in time.
/// - `internal_address`: the site leads to an internal address. No value was entered there.
/// - `origin_not_permitted`: the site leads to a page outside of `domain`, `allowed_domains` and
///   the well-known identity providers. No value was entered there.
/// - `too_many_steps`: the site shows one page after another without an end.
/// - `refused_by_site`: the site shows an error (`website_error`) and no way to proceed.
/// - `credential_rejected`: the site has rejected the stored credential, and no person takes part.
/// - `credential_unavailable`: the stored credential cannot be read, and no person takes part.
/// - `input_required`: the site requests values that are not stored, and no person takes part.
/// - `external_action_required`: the site requests an action of a person, and none takes part.
/// - `profile_not_saved`: the login has succeeded, but the profile could not be saved.
/// - `logged_out`: a health check has found the profile logged out. No flow ends for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowErrorCode {
    Canceled,
    FlowExpired,
    InputTimeout,
    BrowserNotStarted,
    BrowserLost,
    BrowserTimeout,
    ControllerLost,
    LoginPageNotFound,
    SiteUnavailable,
    SiteTimeout,
    InternalAddress,
    OriginNotPermitted,
    TooManySteps,
    RefusedBySite,
    CredentialRejected,
    CredentialUnavailable,
    InputRequired,
    ExternalActionRequired,
    ProfileNotSaved,
    LoggedOut,
}

impl FlowErrorCode {
    /// Returns the status of a flow that has ended for this reason.
    #[must_use]
    pub fn status(self) -> FlowStatus {
        match self {
            Self::Canceled => FlowStatus::Canceled,
            Self::FlowExpired | Self::InputTimeout => FlowStatus::Expired,
            Self::BrowserNotStarted
            | Self::BrowserLost
            | Self::BrowserTimeout
            | Self::ControllerLost
            | Self::LoginPageNotFound
            | Self::SiteUnavailable
            | Self::SiteTimeout
            | Self::InternalAddress
            | Self::OriginNotPermitted
            | Self::TooManySteps
            | Self::RefusedBySite
            | Self::CredentialRejected
            | Self::CredentialUnavailable
            | Self::InputRequired
            | Self::ExternalActionRequired
            | Self::ProfileNotSaved
            | Self::LoggedOut => FlowStatus::Failed,
        }
    }

    /// Returns the message about the reason.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Canceled => "the login was canceled",
            Self::FlowExpired => "the login was not completed within 20 minutes",
            Self::InputTimeout => "no input was received within 10 minutes",
            Self::BrowserNotStarted => "no browser was available",
            Self::BrowserLost => "the browser has crashed or was deleted",
            Self::BrowserTimeout => "the browser did not respond in time",
            Self::ControllerLost => "the server that ran the login has stopped",
            Self::LoginPageNotFound => "no login page was found on the domain",
            Self::SiteUnavailable => "the site could not be loaded",
            Self::SiteTimeout => "the site did not respond in time",
            Self::InternalAddress => "the site leads to an internal address",
            Self::OriginNotPermitted => "the site leads to a page outside of the allowed domains",
            Self::TooManySteps => "the site shows too many pages",
            Self::RefusedBySite => "the site has refused the login",
            Self::CredentialRejected => "the site has rejected the stored credential",
            Self::CredentialUnavailable => "the stored credential cannot be read",
            Self::InputRequired => "the site requests values that are not stored",
            Self::ExternalActionRequired => "the site requests an action of a person",
            Self::ProfileNotSaved => "the profile could not be saved",
            Self::LoggedOut => "the profile is not logged in any more",
        }
    }
}
