//! Requests about the login of an auth connection, and its state.

use deserr::Deserr;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    auth_flow::{ActingParty, FlowErrorCode, FlowStatus, FlowStep, FlowType, RequestedInput},
    ids::AuthConnectionId,
    secret_text::SecretText,
    time::Timestamp,
};

/// A request to begin a login.
#[derive(Debug, Default, Deserr, ToSchema)]
pub struct BeginAuthLogin {
    /// Record the screen, instead of what the connection says.
    #[deserr(default)]
    pub record_session: Option<bool>,
}

/// A new login.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BegunAuthLogin {
    /// The connection.
    pub id: AuthConnectionId,
    pub flow_type: FlowType,
    /// The hosted login page with the code, for the person.
    pub hosted_url: String,
    /// Code for the hosted login page, which works once within 10 minutes.
    pub handoff_code: String,
    /// Time at which the login ends.
    pub flow_expires_at: Timestamp,
}

/// A request to exchange a code. It cannot be printed.
#[derive(Deserr, ToSchema)]
pub struct ExchangeHandoffCode {
    /// Code of a login: 1–256 bytes.
    #[schema(value_type = String, min_length = 1, max_length = 256)]
    pub code: SecretText<1, 256>,
}

/// A token for a login.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ExchangedToken {
    /// Bearer token for the connection, its events, its answers and its cancellation.
    pub jwt: String,
}

/// The answer to a submit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubmitAccepted {
    pub accepted: bool,
}

/// The newest login of a connection. Everything is absent before the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthConnectionFlow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_status: Option<FlowStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_step: Option<FlowStep>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_type: Option<FlowType>,
    /// Time at which the login ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_expires_at: Option<Timestamp>,
    /// The party that has to act until `deadline`.
    #[serde(rename = "who", skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActingParty>,
    /// Time at which the login ends if nothing happens. Absent if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(flatten)]
    pub requested: RequestedInput,
    /// The hosted login page, without a code, while the login is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosted_url: Option<String>,
    /// Page with the live screen of the browser, and control of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_view_url: Option<String>,
    /// The error message that the site shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub website_error: Option<String>,
    /// The reason why the login has ended without success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<FlowErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The identity provider that was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sso_provider: Option<String>,
}
