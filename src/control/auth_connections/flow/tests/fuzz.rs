//! Random sequences of pages, answers, delays and failures against the rules that every flow obeys.
//!
//! `PROPTEST_CASES` sets the number of cases, of which there are at least 1,024.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::api::auth_flow::{ActingParty, RequestedInput};

const PROVIDER: &str = "idp";

/// The hosts that the browser is on, each of one class.
fn hosts() -> Vec<(&'static str, PageOrigin)> {
    let provider = PageOrigin::IdentityProvider {
        provider: PROVIDER.to_owned(),
    };
    vec![
        (SITE, PageOrigin::Domain),
        (SITE, PageOrigin::Domain),
        ("allowed.test", PageOrigin::AllowedDomain),
        ("idp.test", provider),
        ("evil.test", PageOrigin::NotPermitted),
        ("10.0.0.1", PageOrigin::Internal),
    ]
}

fn origin_of(host: &str) -> PageOrigin {
    let mut hosts = hosts().into_iter();
    hosts.find(|(name, _)| *name == host).unwrap().1
}

/// A step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// The driver completes its present action, or the person answers.
    Respond(Response),
    /// Anything happens at any time.
    Event(FlowEvent),
    Answer(AnswerForm),
    /// Nothing happens until the deadline.
    WaitForDeadline,
}

#[derive(Debug, Clone)]
struct Response {
    page: PageFindings,
    outcome: EntryOutcome,
    is_saved: bool,
    answer: AnswerForm,
}

/// The form of an answer, whose ids are those of the present request.
#[derive(Debug, Clone, Copy)]
enum AnswerForm {
    Ids,
    Names,
    Choice,
    MfaOption,
    SsoProvider,
    Stale,
    Unknown,
}

fn fields() -> impl Strategy<Value = Vec<PageField>> {
    let kind = select(vec![
        FieldKind::Identifier,
        FieldKind::Password,
        FieldKind::NewPassword,
        FieldKind::Code,
        FieldKind::SecurityAnswer,
        FieldKind::Text,
    ]);
    let mfa_type = option::of(select(vec![MfaType::Totp, MfaType::Sms]));
    let field = (kind, mfa_type, any::<bool>()).prop_map(|(kind, mfa_type, required)| PageField {
        mfa_type,
        required,
        ..field(kind)
    });
    vec(field, 0..4)
}

fn choices() -> impl Strategy<Value = Vec<PageChoice>> {
    let account = PageChoice {
        is_of_credential: true,
        ..choice(FlowChoiceType::Account, "me@shop.test")
    };
    let choice = select(vec![
        account,
        choice(FlowChoiceType::Account, "you@shop.test"),
        method(MfaType::Sms, "Text message"),
        method(MfaType::Totp, "App"),
        sso_button(PROVIDER),
        sso_button("other"),
    ]);
    prop_oneof![3 => Just(Vec::new()), 1 => vec(choice, 1..4)]
}

fn external() -> impl Strategy<Value = Option<ExternalAction>> {
    let kind = select(vec![
        ExternalActionKind::Captcha,
        ExternalActionKind::Passkey,
        ExternalActionKind::Push,
        ExternalActionKind::EmailLink,
        ExternalActionKind::Unknown,
    ]);
    let action = kind.prop_map(|kind| ExternalAction { kind, detail: None });
    option::weighted(0.15, action)
}

fn page_findings() -> impl Strategy<Value = PageFindings> {
    let obstacle = select(vec![
        PageObstacle::ConsentBanner,
        PageObstacle::RememberDevice,
        PageObstacle::Offer,
    ]);
    let evidence = any::<[bool; 4]>().prop_map(
        |[url_changed, cookies_changed, form_absent, member_content]| LoginEvidence {
            url_changed,
            cookies_changed,
            form_absent,
            member_content,
        },
    );
    (
        select(hosts()),
        option::weighted(0.1, obstacle),
        prop_oneof![1 => Just(Vec::new()), 2 => fields()],
        choices(),
        external(),
        option::weighted(0.2, Just("Wrong password".to_owned())),
        evidence,
    )
        .prop_map(
            |((host, origin), obstacle, fields, choices, external, website_error, evidence)| {
                let page = PageFindings {
                    obstacle,
                    fields,
                    choices,
                    external,
                    website_error,
                    evidence,
                    ..page()
                };
                on_host(page, host, origin)
            },
        )
}

fn outcome() -> impl Strategy<Value = EntryOutcome> {
    prop_oneof![
        8 => Just(EntryOutcome::Submitted),
        2 => Just(EntryOutcome::NotSubmitted),
        1 => Just(EntryOutcome::OriginRefused),
        1 => Just(EntryOutcome::CredentialUnavailable),
    ]
}

fn answer_form() -> impl Strategy<Value = AnswerForm> {
    select(vec![
        AnswerForm::Ids,
        AnswerForm::Names,
        AnswerForm::Choice,
        AnswerForm::MfaOption,
        AnswerForm::SsoProvider,
        AnswerForm::Stale,
        AnswerForm::Unknown,
    ])
}

fn summary() -> impl Strategy<Value = Option<CredentialSummary>> {
    let provider = option::of(Just(PROVIDER.to_owned()));
    let summary =
        (any::<bool>(), provider).prop_map(|(has_totp_secret, sso_provider)| CredentialSummary {
            has_totp_secret,
            sso_provider,
            ..password_credential()
        });
    option::weighted(0.8, summary)
}

fn event() -> impl Strategy<Value = FlowEvent> {
    prop_oneof![
        Just(FlowEvent::Started {
            browser: browser_id(),
            credential: None,
        }),
        Just(FlowEvent::NotStarted(StartFailure::NoBrowser)),
        page_findings().prop_map(FlowEvent::PageFound),
        select(vec![
            PageFailure::Unavailable,
            PageFailure::NoLoginPage,
            PageFailure::InternalAddress,
        ])
        .prop_map(FlowEvent::PageFailed),
        outcome().prop_map(FlowEvent::Filled),
        Just(FlowEvent::ExternalActionSeen),
        Just(FlowEvent::Saved),
        Just(FlowEvent::NotSaved),
        Just(FlowEvent::Canceled),
        Just(FlowEvent::BrowserLost),
        Just(FlowEvent::ControllerLost),
        Just(FlowEvent::Resumed),
        Just(FlowEvent::Timer),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let response = (page_findings(), outcome(), any::<bool>(), answer_form()).prop_map(
        |(page, outcome, is_saved, answer)| Response {
            page,
            outcome,
            is_saved,
            answer,
        },
    );
    prop_oneof![
        40 => response.prop_map(Step::Respond),
        4 => event().prop_map(Step::Event),
        4 => answer_form().prop_map(Step::Answer),
        1 => Just(Step::WaitForDeadline),
    ]
}

/// A flow, and everything that must have happened before it may do something.
struct Model {
    flow: Flow,
    now: DateTime<Utc>,
    credential: Option<CredentialSummary>,
    last_state: ManagedAuthState,
    last_entry: FlowTimelineEntry,
    /// The kinds of the credential's values that were submitted last, and all that were rejected.
    submitted: Vec<FieldKind>,
    rejected: Vec<FieldKind>,
}

impl Model {
    fn new(is_attended: bool, credential: Option<CredentialSummary>) -> Model {
        let now = start_time();
        let begun = Flow::begin(flow_id(), settings(FlowType::Login, is_attended), now);
        Model {
            flow: begun.flow,
            now,
            credential,
            last_state: begun.state.unwrap(),
            last_entry: begun.entry.unwrap(),
            submitted: Vec::new(),
            rejected: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Respond(response) => self.respond(response),
            Step::Event(event) => self.apply(event),
            Step::Answer(form) => self.answer(form),
            Step::WaitForDeadline => {
                self.now = self.flow.deadline().unwrap_or(self.now);
                self.apply(FlowEvent::Timer);
                assert!(self.flow.has_ended());
            }
        }
    }

    fn respond(&mut self, response: Response) {
        let event = match self.flow.effect() {
            Effect::StartBrowser => FlowEvent::Started {
                browser: browser_id(),
                credential: self.credential.clone(),
            },
            Effect::Act(_) => FlowEvent::PageFound(response.page),
            Effect::FillFromCredential { .. } | Effect::EnterAnswers { .. } => {
                FlowEvent::Filled(response.outcome)
            }
            Effect::WatchPage if response.is_saved => FlowEvent::PageFound(response.page),
            Effect::WatchPage => return self.answer(response.answer),
            Effect::SaveProfile { .. } if response.is_saved => FlowEvent::Saved,
            Effect::SaveProfile { .. } => FlowEvent::NotSaved,
            Effect::EndBrowser => FlowEvent::Timer,
        };
        self.apply(event);
    }

    fn apply(&mut self, event: FlowEvent) {
        let transition = self.flow.apply(event.clone(), self.now);
        let before = std::mem::replace(&mut self.flow, transition.flow.clone());
        self.check_evidence(&before, &event);
        self.note_rejection(&before, &event);
        self.check(&before, &transition);
    }

    fn answer(&mut self, form: AnswerForm) {
        let requested = self.flow.state().requested;
        let (interaction, answer) = answer_of(form, &requested);
        let answered = self.flow.answer(interaction.as_ref(), &answer, self.now);
        match answered {
            Ok(transition) => {
                assert_eq!(self.flow.actor(), ActingParty::User);
                assert!(!matches!(form, AnswerForm::Stale | AnswerForm::Unknown));
                let before = std::mem::replace(&mut self.flow, transition.flow.clone());
                self.check(&before, &transition);
            }
            Err(refusal) if self.flow.has_ended() => assert_eq!(refusal, AnswerRefusal::Ended),
            Err(refusal) if matches!(form, AnswerForm::Stale) => {
                assert_eq!(refusal, AnswerRefusal::StaleInteraction);
            }
            Err(_) => {}
        }
    }

    /// Records which values of the credential the site has rejected.
    fn note_rejection(&mut self, before: &Flow, event: &FlowEvent) {
        let entered = match before.effect() {
            Effect::FillFromCredential { entries, .. } => entries,
            Effect::EnterAnswers {
                from_credential, ..
            } => from_credential,
            Effect::Act(_) => {
                if let FlowEvent::PageFound(page) = event
                    && page.website_error.is_some()
                    && !page.fields.is_empty()
                {
                    self.rejected.extend(&self.submitted);
                }
                return;
            }
            _ => return,
        };
        if let FlowEvent::Filled(EntryOutcome::Submitted) | FlowEvent::Resumed = event {
            self.submitted = entered.iter().map(|entry| entry.kind).collect();
        }
    }

    /// Asserts that there is no success without evidence, and none without a saved profile.
    fn check_evidence(&self, before: &Flow, event: &FlowEvent) {
        let is_saving = |flow: &Flow| matches!(flow.effect(), Effect::SaveProfile { .. });
        if is_saving(&self.flow) && !is_saving(before) {
            let FlowEvent::PageFound(page) = event else {
                panic!("{event:?} is no evidence");
            };
            let evidence = page.evidence;
            let has_moved_on = evidence.url_changed && evidence.cookies_changed;
            assert!(evidence.form_absent && (evidence.member_content || has_moved_on));
            assert!(page.fields.is_empty() && page.choices.is_empty() && page.external.is_none());
            assert!(origin_of(&page.host).is_site());
        }
        if self.flow.status() == FlowStatus::Success && !before.has_ended() {
            assert!(is_saving(before));
            assert_eq!(*event, FlowEvent::Saved);
        }
    }

    fn check(&mut self, before: &Flow, transition: &Transition) {
        let flow = &transition.flow;
        let stored = serde_json::to_string(flow).unwrap();
        assert_eq!(serde_json::from_str::<Flow>(&stored).unwrap(), *flow);
        if before.has_ended() {
            assert_eq!(flow, before);
            assert!(transition.effect.is_none());
            assert!(transition.entry.is_none() && transition.state.is_none());
            return;
        }
        match flow.deadline() {
            Some(deadline) => {
                assert!(deadline > self.now && deadline <= start_time() + FLOW_TIMEOUT);
                assert_ne!(flow.actor(), ActingParty::None);
                assert_eq!(flow.error_code(), None);
            }
            None => assert_eq!(flow.actor(), ActingParty::None),
        }
        if let Some(effect) = &transition.effect {
            assert_eq!(*effect, flow.effect());
            self.check_entry(effect);
        }
        self.check_reports(transition);
    }

    /// Asserts that values are entered only where they belong.
    fn check_entry(&self, effect: &Effect) {
        let (host, from_credential) = match effect {
            Effect::FillFromCredential { host, entries } => (host, entries),
            Effect::EnterAnswers {
                host,
                from_credential,
                ..
            } => (host, from_credential),
            _ => return,
        };
        let origin = origin_of(host);
        assert!(origin.is_permitted(), "values are entered on {host}");
        if !from_credential.is_empty() {
            let credential = self.credential.as_ref().unwrap();
            let provider = credential.sso_provider.as_deref();
            match origin {
                PageOrigin::Domain => assert_eq!(provider, None),
                PageOrigin::IdentityProvider { .. } => assert_eq!(provider, Some(PROVIDER)),
                _ => {}
            }
        }
        for entry in from_credential {
            assert!(
                !self.rejected.contains(&entry.kind),
                "{entry:?} was rejected"
            );
        }
    }

    /// Asserts that every change is reported once, in order.
    fn check_reports(&mut self, transition: &Transition) {
        if let Some(state) = &transition.state {
            assert_eq!(*state, transition.flow.state());
            let is_same = ManagedAuthState {
                timestamp: self.last_state.timestamp,
                ..state.clone()
            };
            assert_ne!(is_same, self.last_state);
            assert!(state.timestamp >= self.last_state.timestamp);
            self.last_state = state.clone();
        }
        if let Some(entry) = &transition.entry {
            assert!(transition.state.is_some());
            assert!(entry.number > self.last_entry.number);
            assert!(entry.timestamp >= self.last_entry.timestamp);
            self.last_entry = entry.clone();
        }
        let place = (transition.flow.status(), transition.flow.step());
        assert_eq!(place, (self.last_entry.status, self.last_entry.step));
        assert_eq!(transition.flow.state(), self.last_state);
    }
}

fn answer_of(form: AnswerForm, requested: &RequestedInput) -> (Option<InteractionId>, FlowAnswer) {
    let interaction = requested.interaction_id.clone();
    let answer = match form {
        AnswerForm::Ids => {
            let ids = requested.fields.iter().map(|field| field.id.clone());
            FlowAnswer::FieldIds(ids.collect())
        }
        AnswerForm::Names => {
            let names = requested.discovered_fields.iter();
            FlowAnswer::FieldNames(names.map(|field| field.name.clone()).collect())
        }
        AnswerForm::Choice => {
            let choice = requested.choices.last().map(|choice| choice.id.clone());
            FlowAnswer::Choice(choice.unwrap_or_default())
        }
        AnswerForm::MfaOption => {
            let option = requested.mfa_options.first();
            let kind = option.map(|option| option.kind.as_str());
            FlowAnswer::MfaOption(kind.unwrap_or_default().to_owned())
        }
        AnswerForm::SsoProvider => FlowAnswer::SsoProvider(PROVIDER.to_owned()),
        AnswerForm::Stale => {
            return (
                Some(InteractionId::of(&flow_id(), 0)),
                FlowAnswer::FieldIds(Vec::new()),
            );
        }
        AnswerForm::Unknown => names(&["no such field"]),
    };
    (interaction, answer)
}

fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let cases = config.cases.max(1024);
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(config())]

    /// Any order of pages, answers, delays and failures ends within the deadline, enters values
    /// only where they belong, has evidence of its success and is reported once and in order.
    #[test]
    fn flow_obeys_its_rules_in_every_order_of_events(
        is_attended in prop::bool::weighted(0.8),
        credential in summary(),
        steps in vec((step(), 0..200_i64), 0..60),
    ) {
        let mut model = Model::new(is_attended, credential);
        for (step, seconds) in steps {
            model.take(step);
            model.now += TimeDelta::seconds(seconds);
        }
        model.take(Step::WaitForDeadline);
    }
}
