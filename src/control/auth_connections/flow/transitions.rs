//! The transitions of a flow that has not ended.

use chrono::{DateTime, Utc};

use super::{
    ACTION_TIMEOUT, Entry, Flow, INPUT_TIMEOUT, MAX_STEPS, Phase, Submission,
    credential::CredentialUse,
    decision::Decision,
    effect::{Effect, EntryOutcome, PageAction},
    event::{FlowEvent, PageFailure, StartFailure},
    findings::{PageChoice, PageFindings, PageOrigin},
    prompt::Prompt,
};
use crate::api::auth_flow::{ActingParty, FlowChoiceType, FlowErrorCode};

impl Flow {
    /// Handles an event of a flow that has not ended, before its deadline.
    pub(super) fn handle(&mut self, event: FlowEvent, now: DateTime<Utc>) -> Option<Effect> {
        match (event, &self.phase) {
            (FlowEvent::Canceled, _) => self.end(FlowErrorCode::Canceled),
            (FlowEvent::BrowserLost, _) => self.end(FlowErrorCode::BrowserLost),
            (FlowEvent::ControllerLost, _) => self.end(FlowErrorCode::ControllerLost),
            (FlowEvent::Resumed, _) => self.resume(now),
            (FlowEvent::PageFound(page), _) => self.find_page(page.bounded(), now),
            (FlowEvent::PageFailed(failure), _) => self.fail_page(failure),
            (
                FlowEvent::Started {
                    browser,
                    credential,
                },
                Phase::Starting,
            ) => {
                self.browser = Some(browser);
                self.credential = credential.map(CredentialUse::new).unwrap_or_default();
                self.enter(Phase::Discovering(PageAction::OpenLoginPage), now)
            }
            (FlowEvent::NotStarted(failure), Phase::Starting) => self.end(match failure {
                StartFailure::NoBrowser => FlowErrorCode::BrowserNotStarted,
                StartFailure::NoCredential => FlowErrorCode::CredentialUnavailable,
            }),
            (FlowEvent::Filled(outcome), Phase::Filling(entry)) => {
                let entry = entry.clone();
                self.finish_entry(&entry, outcome, now)
            }
            (FlowEvent::ExternalActionSeen, Phase::Waiting(prompt))
                if prompt.external.is_some() =>
            {
                self.enter(Phase::Submitting(PageAction::WaitForSite), now)
            }
            (FlowEvent::Saved, Phase::Saving { .. }) => {
                self.phase = Phase::Ended { error: None };
                Some(self.effect())
            }
            (FlowEvent::NotSaved, Phase::Saving { .. }) => self.end(FlowErrorCode::ProfileNotSaved),
            (
                FlowEvent::Started { .. }
                | FlowEvent::NotStarted(_)
                | FlowEvent::Filled(_)
                | FlowEvent::ExternalActionSeen
                | FlowEvent::Saved
                | FlowEvent::NotSaved
                | FlowEvent::Timer,
                _,
            ) => None,
        }
    }

    /// Continues a flow whose driver is lost. No value is entered and nothing is selected twice:
    /// the page shows whether it was.
    fn resume(&mut self, now: DateTime<Utc>) -> Option<Effect> {
        match self.phase.clone() {
            Phase::Filling(entry) => self.finish_entry(&entry, EntryOutcome::Submitted, now),
            Phase::Submitting(_) => self.enter(Phase::Submitting(PageAction::WaitForSite), now),
            Phase::Discovering(action) if action != PageAction::OpenLoginPage => {
                self.enter(Phase::Discovering(PageAction::Inspect), now)
            }
            // The person has as much time as before.
            Phase::Waiting(_) => Some(self.effect()),
            phase => self.enter(phase, now),
        }
    }

    fn fail_page(&mut self, failure: PageFailure) -> Option<Effect> {
        let error = FlowErrorCode::from(failure);
        match self.phase {
            Phase::Discovering(_) | Phase::Submitting(_) => self.end(error),
            _ if failure == PageFailure::InternalAddress => self.end(error),
            _ => None,
        }
    }

    fn find_page(&mut self, page: PageFindings, now: DateTime<Utc>) -> Option<Effect> {
        match &self.phase {
            Phase::Discovering(_) | Phase::Submitting(_) => self.reject_credential(&page),
            Phase::Waiting(_) => {}
            _ if page.origin == PageOrigin::Internal => {
                return self.end(FlowErrorCode::InternalAddress);
            }
            _ => return None,
        }
        let decision = self.decide(&page);
        if let Phase::Waiting(prompt) = &mut self.phase {
            match &decision {
                // The page is between two states, or the person is on the way to another one.
                Decision::Act(PageAction::WaitForSite) => return None,
                Decision::End(FlowErrorCode::OriginNotPermitted) if prompt.external.is_some() => {
                    return None;
                }
                Decision::Wait(newer) if prompt.is_same_request(newer) => {
                    prompt.update_selectors(newer.clone());
                    return None;
                }
                _ => {}
            }
        }
        self.steps += 1;
        self.website_error = page.website_error.clone();
        self.perform(decision, page, now)
    }

    fn perform(
        &mut self,
        decision: Decision,
        page: PageFindings,
        now: DateTime<Utc>,
    ) -> Option<Effect> {
        match decision {
            Decision::End(error) => self.end(error),
            Decision::Save => {
                self.post_login_url = Some(page.url);
                self.session_expiry = page.session_expiry;
                let evidence = page.evidence;
                self.enter(Phase::Saving { evidence }, now)
            }
            _ if self.steps > MAX_STEPS => self.end(FlowErrorCode::TooManySteps),
            Decision::Act(action) => {
                self.stalls += 1;
                self.act(action, now)
            }
            Decision::Fill(from_credential) => {
                self.stalls = 0;
                let entry = Entry {
                    host: page.host,
                    prompt: None,
                    answers: Vec::new(),
                    from_credential,
                };
                self.enter(Phase::Filling(entry), now)
            }
            Decision::Choose(choice) => {
                self.credential.add_chosen(&choice.label);
                self.choose(&choice, now)
            }
            Decision::Wait(prompt) => self.wait(prompt, now),
        }
    }

    /// Marks the values of the credential as rejected that were submitted last, if the page shows
    /// an error and requests anything again.
    fn reject_credential(&mut self, page: &PageFindings) {
        if let Some(submission) = &self.submission
            && page.website_error.is_some()
            && !page.fields.is_empty()
        {
            let kinds = submission.from_credential.iter().copied();
            self.credential.add_rejected(kinds);
        }
    }

    /// Acts on a page, in the step of the flow.
    fn act(&mut self, action: PageAction, now: DateTime<Utc>) -> Option<Effect> {
        let phase = match self.phase {
            Phase::Discovering(_) => Phase::Discovering(action),
            _ => Phase::Submitting(action),
        };
        self.enter(phase, now)
    }

    pub(super) fn choose(&mut self, choice: &PageChoice, now: DateTime<Utc>) -> Option<Effect> {
        self.stalls = 0;
        self.failed_entries = 0;
        if let FlowChoiceType::Account | FlowChoiceType::SsoProvider = choice.kind {
            self.may_be_logged_in = true;
        }
        if choice.kind == FlowChoiceType::SsoProvider {
            self.sso_provider = choice.provider.clone();
        }
        let action = PageAction::Choose {
            label: choice.label.clone(),
            selector: choice.selector.clone(),
        };
        self.enter(Phase::Submitting(action), now)
    }

    /// Continues after values were entered, or not.
    fn finish_entry(
        &mut self,
        entry: &Entry,
        outcome: EntryOutcome,
        now: DateTime<Utc>,
    ) -> Option<Effect> {
        match outcome {
            EntryOutcome::OriginRefused => self.end(FlowErrorCode::OriginNotPermitted),
            EntryOutcome::CredentialUnavailable if !self.settings.is_attended => {
                self.end(FlowErrorCode::CredentialUnavailable)
            }
            EntryOutcome::CredentialUnavailable => {
                self.credential = CredentialUse::default();
                self.enter(Phase::Submitting(PageAction::Inspect), now)
            }
            EntryOutcome::NotSubmitted => {
                self.failed_entries += 1;
                self.enter(Phase::Submitting(PageAction::Inspect), now)
            }
            EntryOutcome::Submitted => {
                self.add_submission(entry);
                self.enter(Phase::Submitting(PageAction::WaitForSite), now)
            }
        }
    }

    fn add_submission(&mut self, entry: &Entry) {
        let submission = Submission {
            from_person: entry.answers.iter().map(|answer| answer.kind).collect(),
            from_credential: entry
                .from_credential
                .iter()
                .map(|entry| entry.kind)
                .collect(),
        };
        let from_credential = submission.from_credential.iter().copied();
        self.credential.add_entered(from_credential);
        let mut from_person = submission.from_person.iter();
        self.has_lasting_answers |= from_person.any(|kind| kind.is_lasting());
        let mut kinds = submission
            .from_person
            .iter()
            .chain(&submission.from_credential);
        self.may_be_logged_in |= kinds.any(|kind| kind.is_secret());
        self.failed_entries = 0;
        self.submission = Some(submission);
    }

    /// Waits for the person, or ends the flow if none takes part.
    fn wait(&mut self, mut prompt: Prompt, now: DateTime<Utc>) -> Option<Effect> {
        if !self.settings.is_attended {
            let mut fields = prompt.fields.iter();
            let is_rejected = fields.any(|field| self.credential.is_rejected(field.field.kind));
            return self.end(match &prompt.external {
                Some(_) => FlowErrorCode::ExternalActionRequired,
                None if is_rejected => FlowErrorCode::CredentialRejected,
                None => FlowErrorCode::InputRequired,
            });
        }
        self.stalls = 0;
        if let Some(action) = &prompt.external {
            self.failed_entries = 0;
            self.may_be_logged_in |= action.kind.can_log_in();
        }
        self.prompts += 1;
        prompt.number = self.prompts;
        self.enter(Phase::Waiting(prompt), now)
    }

    /// Enters a phase that is not final, and returns its action.
    pub(super) fn enter(&mut self, phase: Phase, now: DateTime<Utc>) -> Option<Effect> {
        let timeout = match &phase {
            Phase::Waiting(_) => INPUT_TIMEOUT,
            _ => {
                // The site's message was about the page before.
                self.website_error = None;
                ACTION_TIMEOUT
            }
        };
        self.deadline = (now + timeout).min(self.expires_at);
        self.phase = phase;
        Some(self.effect())
    }

    /// Ends the flow without success.
    pub(super) fn end(&mut self, error: FlowErrorCode) -> Option<Effect> {
        self.phase = Phase::Ended { error: Some(error) };
        Some(self.effect())
    }

    /// Returns the error of a flow whose deadline has passed.
    pub(super) fn timeout_error(&self, now: DateTime<Utc>) -> FlowErrorCode {
        match (&self.phase, self.actor()) {
            _ if now >= self.expires_at => FlowErrorCode::FlowExpired,
            (Phase::Starting, _) => FlowErrorCode::BrowserNotStarted,
            (Phase::Saving { .. }, _) => FlowErrorCode::ProfileNotSaved,
            (_, ActingParty::User) => FlowErrorCode::InputTimeout,
            (_, ActingParty::Site) => FlowErrorCode::SiteTimeout,
            (_, ActingParty::System | ActingParty::None) => FlowErrorCode::BrowserTimeout,
        }
    }
}
