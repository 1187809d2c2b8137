//! The record of an auth connection.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AuthConnectionFlow, ConnectionCredentialFields};
use crate::api::{
    ids::{AuthConnectionId, BrowserId},
    time::Timestamp,
};

/// An auth connection: the login of a profile to a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthConnection {
    pub id: AuthConnectionId,
    pub domain: String,
    pub profile_name: String,
    pub status: AuthConnectionStatus,
    pub record_session: bool,
    pub save_credentials: bool,
    pub allowed_domains: Vec<String>,
    pub auto_reauth: bool,
    /// Whether the connection can be logged in again without a person.
    pub can_reauth: bool,
    pub can_reauth_reason: ReauthReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<ConnectionCredentialFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_url: Option<String>,
    /// The page after the last login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_login_url: Option<String>,
    pub health_checks: bool,
    /// Seconds between two health checks.
    pub health_check_interval: u32,
    /// The time of the last login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_auth_at: Option<Timestamp>,
    /// The time of the last health check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_auth_check_at: Option<Timestamp>,
    /// The time of the next health check. Absent before the first login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_auth_check_at: Option<Timestamp>,
    /// The time of the next login without a person, if one is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_reauth_at: Option<Timestamp>,
    /// The time at which the session at the site ends, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_expires_at: Option<Timestamp>,
    /// The browser of the last login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser_session_id: Option<BrowserId>,
    /// The newest login, in progress or not.
    #[serde(flatten)]
    pub flow: AuthConnectionFlow,
    pub created_at: Timestamp,
    /// The time of the last change of the settings.
    pub updated_at: Timestamp,
}

/// Whether the profile is logged in, as far as the last login or health check has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuthConnectionStatus {
    Authenticated,
    NeedsAuth,
}

impl AuthConnectionStatus {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AuthConnectionStatus::Authenticated => "AUTHENTICATED",
            AuthConnectionStatus::NeedsAuth => "NEEDS_AUTH",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<AuthConnectionStatus> {
        let all = [
            AuthConnectionStatus::Authenticated,
            AuthConnectionStatus::NeedsAuth,
        ];
        all.into_iter().find(|status| status.as_str() == text)
    }
}

/// Why a connection can, or cannot, be logged in again without a person. `external_credential`: a
/// provider has the credential. `has_credential`: the project has it. `no_credential`: there is
/// none, or it was deleted or disabled, or is for another site. `requires_customer_input`: the
/// credential has no values, or the last login without a person has failed because the site has
/// rejected them or requests others. `requires_external_action`: it has failed because the site
/// requests an action of a person. `no_viable_plans`: it was given up for another reason. These
/// three end with a login, and with a change of the settings or of the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReauthReason {
    ExternalCredential,
    HasCredential,
    NoCredential,
    NoPriorSuccessfulLogin,
    NoRequirementsRecorded,
    NoViablePlans,
    RequirementsSatisfiable,
    RequiresCustomerInput,
    RequiresEmailCode,
    RequiresExternalAction,
    RequiresSmsCode,
    RequiresTotpWithoutSecret,
    ViablePlansFound,
    ViablePlansRequireExternalAction,
}

impl ReauthReason {
    /// Returns whether a connection with this reason can be logged in without a person.
    #[must_use]
    pub fn permits_reauth(self) -> bool {
        match self {
            ReauthReason::ExternalCredential
            | ReauthReason::HasCredential
            | ReauthReason::RequirementsSatisfiable
            | ReauthReason::ViablePlansFound => true,
            ReauthReason::NoCredential
            | ReauthReason::NoPriorSuccessfulLogin
            | ReauthReason::NoRequirementsRecorded
            | ReauthReason::NoViablePlans
            | ReauthReason::RequiresCustomerInput
            | ReauthReason::RequiresEmailCode
            | ReauthReason::RequiresExternalAction
            | ReauthReason::RequiresSmsCode
            | ReauthReason::RequiresTotpWithoutSecret
            | ReauthReason::ViablePlansRequireExternalAction => false,
        }
    }
}
