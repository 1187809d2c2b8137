//! The flow against sites, each a script of the pages that its login shows, and against random
//! sequences of events.

use chrono::{DateTime, TimeDelta, Utc};

use super::*;
use crate::api::auth_flow::{FlowChoiceType, FlowStep, ManagedAuthState, MfaType};

mod fuzz;
pub(in crate::control::auth_connections) mod inspection;
mod interruptions;
mod second_factors;
mod sites;

const SITE: &str = "shop.test";

fn start_time() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn flow_id() -> FlowId {
    "flow_00000000000000000000000001".parse().unwrap()
}

fn browser_id() -> BrowserId {
    "brw_00000000000000000000000001".parse().unwrap()
}

/// A flow, and everything that it has reported.
struct Login {
    flow: Flow,
    now: DateTime<Utc>,
    /// The last action of the driver.
    effect: Effect,
    entries: Vec<FlowTimelineEntry>,
    states: Vec<ManagedAuthState>,
}

impl Login {
    /// Begins a flow whose browser opens the login page.
    fn begin(settings: FlowSettings, credential: Option<CredentialSummary>) -> Login {
        let now = start_time();
        let Transition {
            flow,
            effect,
            entry,
            state,
        } = Flow::begin(flow_id(), settings, now);
        let mut login = Login {
            flow,
            now,
            effect: effect.unwrap(),
            entries: entry.into_iter().collect(),
            states: state.into_iter().collect(),
        };
        assert_eq!(login.effect, Effect::StartBrowser);
        let browser = browser_id();
        login.send(FlowEvent::Started {
            browser,
            credential,
        });
        assert_eq!(login.effect, Effect::Act(PageAction::OpenLoginPage));
        login
    }

    /// Begins a first login in which a person takes part.
    fn attended(credential: Option<CredentialSummary>) -> Login {
        Login::begin(settings(FlowType::Login, true), credential)
    }

    /// Begins a re-authentication in which no person takes part.
    fn unattended(credential: CredentialSummary) -> Login {
        Login::begin(settings(FlowType::Reauth, false), Some(credential))
    }

    /// Applies an event, a second after the last one.
    fn send(&mut self, event: FlowEvent) {
        self.now += TimeDelta::seconds(1);
        let transition = self.flow.apply(event, self.now);
        self.take(transition);
    }

    fn find(&mut self, page: PageFindings) {
        self.send(FlowEvent::PageFound(page));
    }

    /// Has the driver enter the values and submit the form.
    fn submit(&mut self) {
        self.send(FlowEvent::Filled(EntryOutcome::Submitted));
        assert_eq!(self.effect, Effect::Act(PageAction::WaitForSite));
    }

    fn try_answer(
        &mut self,
        interaction: Option<&InteractionId>,
        answer: &FlowAnswer,
    ) -> Result<(), AnswerRefusal> {
        self.now += TimeDelta::seconds(1);
        let transition = self.flow.answer(interaction, answer, self.now)?;
        self.take(transition);
        Ok(())
    }

    /// Answers the present request.
    fn answer(&mut self, answer: &FlowAnswer) {
        let interaction = self.flow.interaction_id();
        self.try_answer(interaction.as_ref(), answer).unwrap();
    }

    /// Answers all fields of the present request.
    fn answer_fields(&mut self) {
        let fields = self.requested().fields;
        let ids = fields.into_iter().map(|field| field.id).collect();
        self.answer(&FlowAnswer::FieldIds(ids));
    }

    /// Shows the page of a logged-in user, and saves the profile.
    fn succeed(&mut self) {
        self.find(welcome());
        assert!(
            matches!(self.effect, Effect::SaveProfile { .. }),
            "{:?}",
            self.effect
        );
        self.send(FlowEvent::Saved);
        assert_eq!(self.flow.status(), FlowStatus::Success);
        assert_eq!(self.effect, Effect::EndBrowser);
        assert_eq!(
            self.flow.state().post_login_url.as_deref(),
            Some("https://shop.test/account")
        );
    }

    fn take(&mut self, transition: Transition) {
        self.flow = transition.flow;
        self.effect = transition.effect.unwrap_or_else(|| self.effect.clone());
        self.entries.extend(transition.entry);
        self.states.extend(transition.state);
    }

    fn requested(&self) -> crate::api::auth_flow::RequestedInput {
        self.flow.state().requested
    }

    /// Returns the steps of the timeline.
    fn steps(&self) -> Vec<FlowStep> {
        self.entries.iter().map(|entry| entry.step).collect()
    }

    /// Asserts that the flow has ended with an error, and how.
    fn assert_error(&self, error: FlowErrorCode) {
        assert_eq!(self.flow.error_code(), Some(error));
        assert_eq!(self.flow.status(), error.status());
        assert_eq!(self.effect, Effect::EndBrowser);
        let last = self.states.last().unwrap();
        assert_eq!((last.error_code, last.deadline), (Some(error), None));
    }

    /// Returns the names of the credential's values that are being entered.
    fn filled_values(&self) -> Vec<&str> {
        let entries = match &self.effect {
            Effect::FillFromCredential { entries, .. } => entries,
            Effect::EnterAnswers {
                from_credential, ..
            } => from_credential,
            effect => panic!("{effect:?} enters nothing"),
        };
        entries
            .iter()
            .map(|entry| entry.value_name.as_str())
            .collect()
    }

    /// Returns the keys of the submitted values that are being entered.
    fn entered_answers(&self) -> Vec<&str> {
        let Effect::EnterAnswers { answers, .. } = &self.effect else {
            panic!("{:?} enters no answers", self.effect);
        };
        answers.iter().map(|answer| answer.key.as_str()).collect()
    }
}

fn settings(flow_type: FlowType, is_attended: bool) -> FlowSettings {
    FlowSettings {
        flow_type,
        is_attended,
        save_credentials: true,
    }
}

fn credential(value_names: &[&str]) -> CredentialSummary {
    CredentialSummary {
        value_names: value_names.iter().map(ToString::to_string).collect(),
        has_totp_secret: false,
        sso_provider: None,
    }
}

/// Returns a credential with user name and password.
fn password_credential() -> CredentialSummary {
    credential(&["username", "password"])
}

fn names(names: &[&str]) -> FlowAnswer {
    FlowAnswer::FieldNames(names.iter().map(ToString::to_string).collect())
}

/// Returns a page of the site that requests nothing.
fn page() -> PageFindings {
    PageFindings {
        url: "https://shop.test/login".to_owned(),
        host: SITE.to_owned(),
        origin: PageOrigin::Domain,
        obstacle: None,
        fields: Vec::new(),
        choices: Vec::new(),
        external: None,
        website_error: None,
        evidence: LoginEvidence::default(),
        session_expiry: None,
    }
}

fn page_with(fields: &[FieldKind]) -> PageFindings {
    PageFindings {
        fields: fields.iter().copied().map(field).collect(),
        ..page()
    }
}

fn password_page() -> PageFindings {
    page_with(&[FieldKind::Identifier, FieldKind::Password])
}

fn page_with_choices(choices: Vec<PageChoice>) -> PageFindings {
    PageFindings { choices, ..page() }
}

fn page_with_action(kind: ExternalActionKind) -> PageFindings {
    PageFindings {
        external: Some(ExternalAction { kind, detail: None }),
        ..page()
    }
}

/// Returns the page of a logged-in user.
pub(in crate::control) fn welcome() -> PageFindings {
    PageFindings {
        url: "https://shop.test/account".to_owned(),
        evidence: LoginEvidence {
            url_changed: true,
            cookies_changed: true,
            form_absent: true,
            member_content: true,
        },
        ..page()
    }
}

fn with_error(page: PageFindings, message: &str) -> PageFindings {
    PageFindings {
        website_error: Some(message.to_owned()),
        ..page
    }
}

/// Returns the page on another host.
fn on_host(page: PageFindings, host: &str, origin: PageOrigin) -> PageFindings {
    PageFindings {
        url: format!("https://{host}/login"),
        host: host.to_owned(),
        origin,
        ..page
    }
}

fn field(kind: FieldKind) -> PageField {
    let name = match kind {
        FieldKind::Identifier => "login",
        FieldKind::Password => "password",
        FieldKind::NewPassword => "new_password",
        FieldKind::Code => "otp",
        FieldKind::SecurityAnswer => "answer",
        FieldKind::Text => "company",
    };
    PageField {
        kind,
        name: name.to_owned(),
        label: format!("Your {name}"),
        selector: format!("#{name}"),
        input: FieldInput::Text,
        placeholder: None,
        hint: None,
        required: true,
        mfa_type: None,
    }
}

fn code_page(mfa_type: MfaType) -> PageFindings {
    let code = PageField {
        mfa_type: Some(mfa_type),
        input: FieldInput::Number,
        ..field(FieldKind::Code)
    };
    PageFindings {
        fields: vec![code],
        ..page()
    }
}

fn choice(kind: FlowChoiceType, label: &str) -> PageChoice {
    PageChoice {
        kind,
        label: label.to_owned(),
        selector: format!("[data-choice='{label}']"),
        display_text: None,
        description: None,
        context: None,
        target: None,
        mfa_type: None,
        provider: None,
        is_of_credential: false,
    }
}

fn method(mfa_type: MfaType, label: &str) -> PageChoice {
    PageChoice {
        mfa_type: Some(mfa_type),
        ..choice(FlowChoiceType::MfaMethod, label)
    }
}

fn sso_button(provider: &str) -> PageChoice {
    PageChoice {
        provider: Some(provider.to_owned()),
        ..choice(
            FlowChoiceType::SsoProvider,
            &format!("Log in with {provider}"),
        )
    }
}
