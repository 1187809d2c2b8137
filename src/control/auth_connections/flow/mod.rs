//! The flow that logs a connection in, as a pure state machine: each event leads to the next state,
//! and to at most one action of the driver. `docs/design/auth-connections.md` describes it.
//!
//! ```text
//! Starting ──Started──▶ Discovering ◀──┐ another action on the page
//!                            │ PageFound
//!                            ▼
//!       ┌─── Decision: what the page requests, and the evidence of the login ◀──────┐
//!       │                    │                    │                    │            │
//!       ▼                    ▼                    ▼                    ▼            │
//!    Waiting ──answer──▶ Filling ──Filled──▶ Submitting ──PageFound────────────────┤
//!       │                                                             Saving        │
//!       └──PageFound: the page has moved on by itself───────────────────┼───────────┘
//!                                                                       │ Saved
//! every state ──Canceled, BrowserLost, ControllerLost, deadline──▶ Ended ◀──┘
//! ```
//!
//! A flow has no value of a credential, and none that the person has submitted: they are named in
//! [`Effect`]s only, and the driver has them. So the state can be stored, and another process
//! continues with [`FlowEvent::Resumed`].

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::api::{
    auth_flow::{FlowErrorCode, FlowStatus, FlowType, InteractionId},
    ids::{BrowserId, FlowId},
};

mod credential;
mod decision;
mod effect;
mod event;
mod findings;
mod inspection;
mod prompt;
mod transitions;
mod view;

pub use credential::CredentialSummary;
use credential::CredentialUse;
pub use effect::{AnswerEntry, CredentialEntry, Effect, EntryOutcome, PageAction};
pub use event::{FlowEvent, PageFailure, StartFailure, Transition};
pub use findings::{
    ExternalAction, ExternalActionKind, FieldInput, FieldKind, LoginEvidence, PageChoice,
    PageField, PageFindings, PageObstacle, PageOrigin, SessionExpiry,
};
pub use inspection::{InspectionContext, PageMark, host_of};
pub use prompt::{AnswerRefusal, FlowAnswer};
use prompt::{Prompt, ResolvedAnswer};
pub use view::FlowTimelineEntry;

/// The time in which a flow ends.
pub const FLOW_TIMEOUT: TimeDelta = TimeDelta::minutes(20);
/// The time in which the person has to answer a request, or to act.
pub const INPUT_TIMEOUT: TimeDelta = TimeDelta::minutes(10);
/// The time of every state in which the system or the site acts. It is longer than any attempt of
/// the driver, which has timeouts of its own.
pub const ACTION_TIMEOUT: TimeDelta = TimeDelta::minutes(2);
/// The most pages that a flow acts on.
pub const MAX_STEPS: u32 = 40;
/// The most times in a row that the flow waits for a page that requests nothing, confirms an
/// obstacle or fails to fill a form. Then it hands over to the person.
pub const MAX_STALLS: u32 = 3;

/// A login flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    id: FlowId,
    settings: FlowSettings,
    phase: Phase,
    /// The time at which the phase, and the flow with it, ends.
    deadline: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    /// The time of the last visible change.
    updated_at: DateTime<Utc>,
    /// The number of visible changes.
    revision: u32,
    browser: Option<BrowserId>,
    credential: CredentialUse,
    /// The number of requests to the person.
    prompts: u32,
    /// The number of pages that the flow has acted on.
    steps: u32,
    /// The number of pages in a row that requested nothing, or had an obstacle.
    stalls: u32,
    /// The number of forms in a row that could not be filled.
    failed_entries: u32,
    /// The last values that were submitted.
    submission: Option<Submission>,
    /// Whether something was submitted, or the person has done something, that can log in.
    may_be_logged_in: bool,
    /// Whether the person has submitted values that a credential can store.
    has_lasting_answers: bool,
    website_error: Option<String>,
    sso_provider: Option<String>,
    post_login_url: Option<String>,
    /// Flows of older programs have none.
    #[serde(default)]
    session_expiry: Option<SessionExpiry>,
}

/// The settings of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSettings {
    pub flow_type: FlowType,
    /// Whether a person takes part. Otherwise a flow ends when one is needed.
    pub is_attended: bool,
    /// Whether the values that the person submits are saved as a credential.
    pub save_credentials: bool,
}

/// The state of a flow. Each has one action that the driver performs, see [`Flow::effect`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Starting,
    /// The browser acts on a page, before anything was submitted.
    Discovering(PageAction),
    Filling(Entry),
    /// The browser acts on a page, or waits for the site, after something was submitted.
    Submitting(PageAction),
    Waiting(Prompt),
    Saving {
        evidence: LoginEvidence,
    },
    /// This state is final. Without an error the flow was successful.
    Ended {
        error: Option<FlowErrorCode>,
    },
}

/// Values that are being entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Values are entered only on this host.
    host: String,
    /// The request that the person has answered. `None` if all values are of the credential.
    prompt: Option<u32>,
    answers: Vec<AnswerEntry>,
    from_credential: Vec<CredentialEntry>,
}

/// The kinds of the values that were submitted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Submission {
    from_person: Vec<FieldKind>,
    from_credential: Vec<FieldKind>,
}

impl Submission {
    fn contains(&self, kind: FieldKind) -> bool {
        self.from_person.contains(&kind) || self.from_credential.contains(&kind)
    }
}

impl Flow {
    /// Begins a flow.
    #[must_use]
    pub fn begin(id: FlowId, settings: FlowSettings, now: DateTime<Utc>) -> Transition {
        let flow = Flow {
            id,
            settings,
            phase: Phase::Starting,
            deadline: now + ACTION_TIMEOUT,
            expires_at: now + FLOW_TIMEOUT,
            updated_at: now,
            revision: 1,
            browser: None,
            credential: CredentialUse::default(),
            prompts: 0,
            steps: 0,
            stalls: 0,
            failed_entries: 0,
            submission: None,
            may_be_logged_in: false,
            has_lasting_answers: false,
            website_error: None,
            sso_provider: None,
            post_login_url: None,
            session_expiry: None,
        };
        Transition {
            effect: Some(flow.effect()),
            entry: Some(flow.timeline_entry()),
            state: Some(flow.state()),
            flow,
        }
    }

    /// Returns the consequence of an event. From its deadline on, every event ends the flow.
    #[must_use]
    pub fn apply(&self, event: FlowEvent, now: DateTime<Utc>) -> Transition {
        let mut next = self.clone();
        let effect = match &self.phase {
            Phase::Ended { .. } => None,
            _ if now >= self.deadline => next.end(self.timeout_error(now)),
            _ => next.handle(event, now),
        };
        self.transition_to(next, effect, now)
    }

    /// Returns the consequence of an answer of the person.
    ///
    /// # Errors
    /// Returns why the answer does not fit the present request. Nothing has changed then.
    pub fn answer(
        &self,
        interaction: Option<&InteractionId>,
        answer: &FlowAnswer,
        now: DateTime<Utc>,
    ) -> Result<Transition, AnswerRefusal> {
        let prompt = match &self.phase {
            Phase::Ended { .. } => return Err(AnswerRefusal::Ended),
            Phase::Waiting(prompt) if now < self.deadline => prompt,
            _ if interaction.is_some() => return Err(AnswerRefusal::StaleInteraction),
            _ => return Err(AnswerRefusal::NotAwaiting),
        };
        if interaction.is_some_and(|id| *id != self.interaction(prompt.number)) {
            return Err(AnswerRefusal::StaleInteraction);
        }
        let mut next = self.clone();
        let effect = match prompt.resolve(answer)? {
            ResolvedAnswer::Choice(choice) => next.choose(&choice, now),
            ResolvedAnswer::Values(answers) => {
                let entry = Entry {
                    host: prompt.host.clone(),
                    prompt: Some(prompt.number),
                    answers,
                    from_credential: prompt.from_credential.clone(),
                };
                next.enter(Phase::Filling(entry), now)
            }
        };
        Ok(self.transition_to(next, effect, now))
    }

    /// Returns the action that the present state waits for.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match &self.phase {
            Phase::Starting => Effect::StartBrowser,
            Phase::Discovering(action) | Phase::Submitting(action) => Effect::Act(action.clone()),
            Phase::Filling(entry) => match entry.prompt {
                Some(number) => Effect::EnterAnswers {
                    interaction: self.interaction(number),
                    host: entry.host.clone(),
                    answers: entry.answers.clone(),
                    from_credential: entry.from_credential.clone(),
                },
                None => Effect::FillFromCredential {
                    host: entry.host.clone(),
                    entries: entry.from_credential.clone(),
                },
            },
            Phase::Waiting(_) => Effect::WatchPage,
            Phase::Saving { .. } => Effect::SaveProfile {
                save_answers: self.settings.save_credentials && self.has_lasting_answers,
            },
            Phase::Ended { .. } => Effect::EndBrowser,
        }
    }

    #[must_use]
    pub fn id(&self) -> &FlowId {
        &self.id
    }

    #[must_use]
    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Returns the browser in which the flow runs.
    #[must_use]
    pub fn browser(&self) -> Option<&BrowserId> {
        self.browser.as_ref()
    }

    /// Returns the identity provider that was selected.
    #[must_use]
    pub fn sso_provider(&self) -> Option<&str> {
        self.sso_provider.as_deref()
    }

    /// Returns the expiry of the session, if it is logged in and that is known.
    #[must_use]
    pub fn session_expiry(&self) -> Option<&SessionExpiry> {
        self.session_expiry.as_ref()
    }

    /// Returns the number of changes that clients have seen.
    #[must_use]
    pub fn revision(&self) -> u32 {
        self.revision
    }

    #[must_use]
    pub fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status() != FlowStatus::InProgress
    }

    fn interaction(&self, prompt: u32) -> InteractionId {
        InteractionId::of(&self.id, prompt)
    }

    /// Completes a transition to `next`: numbers and dates it if clients see a difference.
    fn transition_to(
        &self,
        mut next: Flow,
        effect: Option<Effect>,
        now: DateTime<Utc>,
    ) -> Transition {
        let has_advanced = next.has_advanced_since(self);
        let has_changed = has_advanced || next.state() != self.state();
        if has_changed {
            next.revision += 1;
            // The clocks of two processes may differ.
            next.updated_at = now.max(self.updated_at);
        }
        Transition {
            effect,
            entry: has_advanced.then(|| next.timeline_entry()),
            state: has_changed.then(|| next.state()),
            flow: next,
        }
    }
}

#[cfg(test)]
pub(in crate::control) mod tests;
