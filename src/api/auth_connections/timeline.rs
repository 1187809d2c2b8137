//! The timeline of an auth connection.

use deserr::Deserr;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AuthConnectionStatus;
use crate::api::{
    auth_flow::{FlowErrorCode, FlowStatus, FlowStep},
    ids::{AuthTimelineId, BrowserId, FlowId, ReplayId},
    paging::{Limit, Offset, Page},
    time::Timestamp,
};

/// The type of an entry. `login`: the first login. `reauth`: a later one. `health_check`: whether
/// the profile is still logged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Deserr, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthEventType {
    #[deserr(rename = "login")]
    Login,
    #[deserr(rename = "reauth")]
    Reauth,
    #[deserr(rename = "health_check")]
    HealthCheck,
}

/// The status of a login flow, or that of the connection after a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuthEventStatus {
    InProgress,
    Success,
    Failed,
    Expired,
    Canceled,
    Authenticated,
    NeedsAuth,
}

impl From<FlowStatus> for AuthEventStatus {
    fn from(status: FlowStatus) -> Self {
        match status {
            FlowStatus::InProgress => AuthEventStatus::InProgress,
            FlowStatus::Success => AuthEventStatus::Success,
            FlowStatus::Failed => AuthEventStatus::Failed,
            FlowStatus::Expired => AuthEventStatus::Expired,
            FlowStatus::Canceled => AuthEventStatus::Canceled,
        }
    }
}

impl From<AuthConnectionStatus> for AuthEventStatus {
    fn from(status: AuthConnectionStatus) -> Self {
        match status {
            AuthConnectionStatus::Authenticated => AuthEventStatus::Authenticated,
            AuthConnectionStatus::NeedsAuth => AuthEventStatus::NeedsAuth,
        }
    }
}

/// An entry of the timeline: a step of a login flow, a further request to the person, or a health
/// check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthTimelineEvent {
    pub id: AuthTimelineId,
    #[serde(rename = "type")]
    pub event_type: AuthEventType,
    pub timestamp: Timestamp,
    pub status: AuthEventStatus,
    /// The status before. Absent for the first entry of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_status: Option<AuthEventStatus>,
    /// The step of the login flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<FlowStep>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<FlowErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The error message that the site showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub website_error: Option<String>,
    /// The login flow. Entries of one flow have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_id: Option<FlowId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser_session_id: Option<BrowserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_id: Option<ReplayId>,
    pub updated_at: Timestamp,
    /// The time at which the flow or the health check has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

/// Filter and paging of the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListAuthTimeline {
    /// Type of the entries.
    #[deserr(default, rename = "type")]
    #[param(rename = "type", value_type = Option<AuthEventType>, inline, example = "login")]
    pub event_type: Option<AuthEventType>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListAuthTimeline {
    #[must_use]
    pub fn page(self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}
