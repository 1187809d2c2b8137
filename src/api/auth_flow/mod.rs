//! The flow that logs an auth connection in: its states, what it requests, and the answers of the
//! person.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{error::ErrorDetail, time::Timestamp};

mod error_code;
mod requested_input;
mod submit;

pub use error_code::FlowErrorCode;
pub use requested_input::{
    DiscoveredField, DiscoveredFieldType, FieldReason, FlowChoice, FlowChoiceType, FlowField,
    FlowFieldType, InputMode, InteractionId, MfaOption, MfaType, RequestedInput, SignInOption,
    SsoButton,
};
pub use submit::{SubmitAuthFlow, SubmittedAnswer, SubmittedAnswerFields};

/// The status of a login flow. All but `IN_PROGRESS` are final. `SUCCESS`: the profile is logged in
/// and saved. `FAILED`: `error_code` has the reason. `EXPIRED`: 20 minutes have passed, or 10
/// minutes in which a person was to act. `CANCELED`: by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowStatus {
    InProgress,
    Success,
    Failed,
    Expired,
    Canceled,
}

/// The step of a login flow. `INITIALIZED`: the browser is being started. `DISCOVERING`: the login
/// page is opened and inspected. `AWAITING_INPUT`: a person has to submit values or a choice.
/// `AWAITING_EXTERNAL_ACTION`: a person has to act on the site in the live view, or on a device.
/// `SUBMITTING`: values are entered, the site responds, or the profile is saved. `COMPLETED`: the
/// flow has ended. `EXPIRED`: the flow has ended because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowStep {
    Initialized,
    Discovering,
    AwaitingInput,
    AwaitingExternalAction,
    Submitting,
    Completed,
    Expired,
}

/// The step of a login flow in its event stream, where `INITIALIZED` is `DISCOVERING` and `EXPIRED`
/// is `COMPLETED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StreamedStep {
    Discovering,
    AwaitingInput,
    AwaitingExternalAction,
    Submitting,
    Completed,
}

impl From<FlowStep> for StreamedStep {
    fn from(step: FlowStep) -> StreamedStep {
        match step {
            FlowStep::Initialized | FlowStep::Discovering => StreamedStep::Discovering,
            FlowStep::AwaitingInput => StreamedStep::AwaitingInput,
            FlowStep::AwaitingExternalAction => StreamedStep::AwaitingExternalAction,
            FlowStep::Submitting => StreamedStep::Submitting,
            FlowStep::Completed | FlowStep::Expired => StreamedStep::Completed,
        }
    }
}

/// The type of a login flow. `LOGIN`: the first login of the connection. `REAUTH`: a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowType {
    Login,
    Reauth,
}

/// The party that a login flow waits for. `system`: this server or its browser. `user`: the person
/// who logs in. `site`: the response of the site. `none`: the flow has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActingParty {
    System,
    User,
    Site,
    None,
}

/// The state of a login flow, as an event of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManagedAuthState {
    pub event: ManagedAuthEventName,
    pub timestamp: Timestamp,
    pub flow_status: FlowStatus,
    pub flow_step: StreamedStep,
    pub flow_type: FlowType,
    /// The party that has to act until `deadline`.
    #[serde(rename = "who")]
    pub actor: ActingParty,
    /// The time at which the flow ends if nothing happens. Absent if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(flatten)]
    pub requested: RequestedInput,
    /// Page on which a person can log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosted_url: Option<String>,
    /// Page with the live screen of the browser, and control of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_view_url: Option<String>,
    /// URL of the page after the login, without query and fragment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_login_url: Option<String>,
    /// The error message that the site shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub website_error: Option<String>,
    /// The reason why the flow has ended without success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<FlowErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// An event of the stream of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AuthFlowEvent {
    State(Box<ManagedAuthState>),
    Notice(AuthFlowNotice),
}

/// An event of the stream of a login that is no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuthFlowNotice {
    pub event: AuthFlowNoticeName,
    pub timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// The name of an event that is no state. `reset`: `Last-Event-ID` is not of this login. `error`:
/// the stream ends for this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthFlowNoticeName {
    SseHeartbeat,
    Reset,
    Error,
}

/// The name of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ManagedAuthEventName {
    ManagedAuthState,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_has_the_names_of_the_contract() {
        let state = ManagedAuthState {
            event: ManagedAuthEventName::ManagedAuthState,
            timestamp: Timestamp(chrono::DateTime::UNIX_EPOCH),
            flow_status: FlowStatus::InProgress,
            flow_step: FlowStep::AwaitingInput.into(),
            flow_type: FlowType::Reauth,
            actor: ActingParty::User,
            deadline: None,
            requested: RequestedInput {
                fields: vec![FlowField {
                    id: "field_1_1".to_owned(),
                    reference: "password".to_owned(),
                    kind: FlowFieldType::Password,
                    reason: FieldReason::Rejected,
                    label: "Password".to_owned(),
                    hint: None,
                    input_mode: InputMode::Text,
                    required: true,
                }],
                ..RequestedInput::default()
            },
            hosted_url: None,
            live_view_url: None,
            post_login_url: None,
            website_error: Some("Wrong password".to_owned()),
            error_code: None,
            error_message: None,
        };
        let json = json!({
            "event": "managed_auth_state",
            "timestamp": "1970-01-01T00:00:00.000Z",
            "flow_status": "IN_PROGRESS",
            "flow_step": "AWAITING_INPUT",
            "flow_type": "REAUTH",
            "who": "user",
            "fields": [{
                "id": "field_1_1",
                "ref": "password",
                "type": "password",
                "reason": "rejected",
                "label": "Password",
                "input_mode": "text",
                "required": true,
            }],
            "website_error": "Wrong password",
        });
        assert_eq!(serde_json::to_value(&state).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<ManagedAuthState>(json).unwrap(),
            state
        );
    }

    #[test]
    fn stream_shows_five_steps() {
        for (step, streamed) in [
            (FlowStep::Initialized, "DISCOVERING"),
            (FlowStep::Discovering, "DISCOVERING"),
            (FlowStep::AwaitingInput, "AWAITING_INPUT"),
            (FlowStep::AwaitingExternalAction, "AWAITING_EXTERNAL_ACTION"),
            (FlowStep::Submitting, "SUBMITTING"),
            (FlowStep::Completed, "COMPLETED"),
            (FlowStep::Expired, "COMPLETED"),
        ] {
            let json = serde_json::to_value(StreamedStep::from(step)).unwrap();
            assert_eq!(json, streamed, "{step:?}");
        }
    }
}
