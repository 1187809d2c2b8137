//! The flow as clients see it: its state, and the entries of the timeline.

use chrono::{DateTime, Utc};

use super::{Flow, Phase, effect::PageAction};
use crate::api::{
    auth_flow::{
        ActingParty, FlowErrorCode, FlowStatus, FlowStep, InteractionId, ManagedAuthEventName,
        ManagedAuthState, RequestedInput,
    },
    time::Timestamp,
};

/// An entry of the connection's timeline: the flow has entered a step, or made another request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTimelineEntry {
    /// Grows with each entry of the flow.
    pub number: u32,
    pub timestamp: DateTime<Utc>,
    pub status: FlowStatus,
    pub step: FlowStep,
    pub website_error: Option<String>,
    pub error_code: Option<FlowErrorCode>,
}

impl Flow {
    #[must_use]
    pub fn status(&self) -> FlowStatus {
        match &self.phase {
            Phase::Ended { error: None } => FlowStatus::Success,
            Phase::Ended { error: Some(code) } => code.status(),
            _ => FlowStatus::InProgress,
        }
    }

    #[must_use]
    pub fn step(&self) -> FlowStep {
        match &self.phase {
            Phase::Starting => FlowStep::Initialized,
            Phase::Discovering(_) => FlowStep::Discovering,
            Phase::Waiting(prompt) if prompt.external.is_some() => FlowStep::AwaitingExternalAction,
            Phase::Waiting(_) => FlowStep::AwaitingInput,
            Phase::Filling(_) | Phase::Submitting(_) | Phase::Saving { .. } => FlowStep::Submitting,
            Phase::Ended { .. } if self.status() == FlowStatus::Expired => FlowStep::Expired,
            Phase::Ended { .. } => FlowStep::Completed,
        }
    }

    /// Returns the party that has to act until the deadline.
    #[must_use]
    pub fn actor(&self) -> ActingParty {
        match &self.phase {
            Phase::Starting | Phase::Filling(_) | Phase::Saving { .. } => ActingParty::System,
            Phase::Discovering(action) | Phase::Submitting(action) => match action {
                PageAction::Inspect
                | PageAction::DismissConsent
                | PageAction::RememberDevice
                | PageAction::SkipOffer => ActingParty::System,
                PageAction::OpenLoginPage | PageAction::Choose { .. } | PageAction::WaitForSite => {
                    ActingParty::Site
                }
            },
            Phase::Waiting(_) => ActingParty::User,
            Phase::Ended { .. } => ActingParty::None,
        }
    }

    /// Returns the time at which the flow ends if nothing happens, unless it has ended.
    #[must_use]
    pub fn deadline(&self) -> Option<DateTime<Utc>> {
        (self.status() == FlowStatus::InProgress).then_some(self.deadline)
    }

    #[must_use]
    pub fn error_code(&self) -> Option<FlowErrorCode> {
        match &self.phase {
            Phase::Ended { error } => *error,
            _ => None,
        }
    }

    /// Returns the request that the person has to answer.
    #[must_use]
    pub fn interaction_id(&self) -> Option<InteractionId> {
        match &self.phase {
            Phase::Waiting(prompt) => Some(self.interaction(prompt.number)),
            _ => None,
        }
    }

    /// Returns the present state as an event of the stream, without the URLs for the person, which
    /// the flow does not know.
    #[must_use]
    pub fn state(&self) -> ManagedAuthState {
        let requested = match &self.phase {
            Phase::Waiting(prompt) => prompt.requested_input(self.interaction(prompt.number)),
            _ => RequestedInput::default(),
        };
        ManagedAuthState {
            event: ManagedAuthEventName::ManagedAuthState,
            timestamp: Timestamp(self.updated_at),
            flow_status: self.status(),
            flow_step: self.step().into(),
            flow_type: self.settings.flow_type,
            actor: self.actor(),
            deadline: self.deadline().map(Timestamp),
            requested,
            hosted_url: None,
            live_view_url: None,
            post_login_url: self.post_login_url.clone(),
            website_error: self.website_error.clone(),
            error_code: self.error_code(),
            error_message: self.error_code().map(|code| code.message().to_owned()),
        }
    }

    /// Returns whether the flow has entered another step, or made another request, since `earlier`.
    pub(super) fn has_advanced_since(&self, earlier: &Flow) -> bool {
        let place = |flow: &Flow| (flow.status(), flow.step(), flow.interaction_id());
        place(self) != place(earlier)
    }

    pub(super) fn timeline_entry(&self) -> FlowTimelineEntry {
        FlowTimelineEntry {
            number: self.revision,
            timestamp: self.updated_at,
            status: self.status(),
            step: self.step(),
            website_error: self.website_error.clone(),
            error_code: self.error_code(),
        }
    }
}
