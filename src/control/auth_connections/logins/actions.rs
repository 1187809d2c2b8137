//! Performs the actions of a login in its browser.

use std::time::Duration;

use http::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::sleep;

use super::{
    Inner,
    answers::{self, Answers},
    browser::{create_when_available, new_browser, profile_of},
    page::{LoginPage, PageError, is_same_page},
    steps::{choose, click_one, follow_login_links, open_login_page, unchecked_box},
};
use crate::{
    api::{
        auth_flow::{FlowStep, InteractionId},
        credential_fill::FillSelector,
        ids::{BrowserId, ReplayId},
        login_page::{InspectedPage, LoginActKind},
    },
    control::{
        auth_connections::flow::{
            AnswerEntry, CredentialEntry, CredentialSummary, Effect, EntryOutcome, FieldKind,
            FlowEvent, PageAction, PageMark, StartFailure,
        },
        browsers::{BrowserError, BrowserProfileError},
        credentials::{
            CredentialError,
            fill::FillPageError,
            login::{LoginCredential, LoginEntry, LoginValue},
            material::MaterialError,
        },
        fleet::{AgentError, BrowserRun},
        providers::{LookupError, service::ProviderServiceError},
        store::{AuthConnectionRow, AuthFlowRow, Creation},
    },
};

/// The delay before something is read again that is not available.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The interval at which a page is looked at while the person acts.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The wait of such a look for the page to be at rest, in milliseconds.
const WATCH_WAIT_MS: u32 = 1000;

/// The knowledge of a driver beside the row of its flow. Another driver finds it out again.
#[derive(Default)]
pub(super) struct Memory {
    /// The page of the last event.
    page: Option<InspectedPage>,
    run: Option<BrowserRun>,
    /// The names of the account of the stored credential.
    identifiers: Vec<SecretString>,
    /// The values of the stored credential.
    stored: Vec<SecretString>,
    /// Whether the stored credential was read.
    has_read_credential: bool,
    /// The recording that this driver has started.
    replay: Option<ReplayId>,
}

impl Memory {
    /// Returns the recording that this driver has started.
    pub(super) fn replay(&self) -> Option<&ReplayId> {
        self.replay.as_ref()
    }

    /// Returns the mark of the page of the last event.
    pub(super) fn page_mark(&self) -> Option<String> {
        let mark = PageMark::from(self.page.as_ref()?);
        serde_json::to_string(&mark).ok()
    }
}

/// A flow with its connection, and what its driver knows.
pub(super) struct Action<'a> {
    pub(super) services: &'a Inner,
    pub(super) row: &'a AuthFlowRow,
    pub(super) connection: &'a AuthConnectionRow,
    pub(super) memory: &'a mut Memory,
}

impl<'a> Action<'a> {
    /// Performs an action until it has an event.
    pub(super) async fn perform(&mut self, effect: Effect) -> FlowEvent {
        let performed = match effect {
            Effect::StartBrowser => Ok(self.start_browser().await),
            Effect::Act(action) => self.act(action).await,
            Effect::FillFromCredential { host, entries } => {
                self.enter(&host, None, &[], &entries).await
            }
            Effect::EnterAnswers {
                interaction,
                host,
                answers,
                from_credential,
            } => {
                self.enter(&host, Some(&interaction), &answers, &from_credential)
                    .await
            }
            Effect::WatchPage => self.watch().await,
            Effect::SaveProfile { save_answers } => self.save(save_answers).await,
            // The driver does that.
            Effect::EndBrowser => Ok(FlowEvent::Timer),
        };
        match performed {
            Ok(event) => event,
            Err(PageError::BrowserLost) => FlowEvent::BrowserLost,
        }
    }

    async fn start_browser(&mut self) -> FlowEvent {
        let credential = match self.read_credential().await {
            Ok(credential) => credential,
            Err(error) if self.row.flow.settings().is_attended => {
                tracing::info!(flow = %self.row.id(), %error, "a login has no stored credential");
                None
            }
            Err(error) => {
                tracing::warn!(flow = %self.row.id(), %error, "cannot read the credential of a login");
                return FlowEvent::NotStarted(StartFailure::NoCredential);
            }
        };
        let credential = credential.map(|credential| CredentialSummary {
            value_names: credential.value_names().map(str::to_owned).collect(),
            has_totp_secret: credential.has_code(),
            sso_provider: credential.sso_provider().map(str::to_owned),
        });
        match create_when_available(|| self.create_browser()).await {
            Ok(browser) => {
                self.memory.replay = self.record(&browser).await;
                FlowEvent::Started {
                    browser,
                    credential,
                }
            }
            Err(error) => {
                tracing::warn!(flow = %self.row.id(), %error, "no browser for a login");
                FlowEvent::NotStarted(StartFailure::NoBrowser)
            }
        }
    }

    /// Starts the browser of the flow, or finds that of an interrupted start.
    async fn create_browser(&self) -> Result<BrowserId, BrowserError> {
        let parts = &self.services.parts;
        let project = &self.row.project_id;
        let profile = profile_of(self.connection).ok_or(BrowserError::NotFound)?;
        let found = parts.profiles.find_or_create(project, &profile).await;
        found.map_err(BrowserProfileError::Load)?;
        let new = new_browser(self.connection, profile);
        let creation = Some(creation_of(self.row));
        let row = parts.browsers.create(project, new, creation).await?;
        Ok(row.id)
    }

    /// Reads the stored credential of the connection, if it has one, and remembers its values.
    async fn read_credential(&mut self) -> Result<Option<LoginCredential>, MaterialError> {
        let Some(reference) = &self.connection.settings.credential else {
            return Ok(None);
        };
        let (project, domain) = (&self.row.project_id, &self.connection.domain);
        let filler = &self.services.parts.filler;
        let found = filler
            .find_login_credential(project, reference, domain)
            .await?;
        self.memory.identifiers = found.identifiers().cloned().collect();
        self.memory.stored = found.values().cloned().collect();
        Ok(Some(found))
    }

    async fn act(&mut self, action: PageAction) -> Result<FlowEvent, PageError> {
        let page = self.page().await?;
        let before = self.memory.page.take();
        let found = match action {
            PageAction::OpenLoginPage => match open_login_page(&page, self.connection).await? {
                Ok(found) => found,
                Err(failure) => return Ok(FlowEvent::PageFailed(failure)),
            },
            PageAction::Inspect => page.settled().await?,
            PageAction::DismissConsent => {
                let kind = LoginActKind::Dismiss;
                click_one(&page, kind, |found| {
                    Some(&found.consent.as_ref()?.reference)
                })
                .await?
            }
            PageAction::SkipOffer => {
                let kind = LoginActKind::Click;
                click_one(&page, kind, |found| Some(&found.skip.as_ref()?.reference)).await?
            }
            PageAction::RememberDevice => {
                let kind = LoginActKind::Check;
                click_one(&page, kind, unchecked_box).await?
            }
            PageAction::Choose { label, selector } => choose(&page, &label, &selector).await?,
            PageAction::WaitForSite => page.response_to(before.as_ref()).await?,
        };
        let is_looking = self.row.flow.step() == FlowStep::Discovering
            && self.connection.settings.login_url.is_none();
        let found = match is_looking {
            true => follow_login_links(&page, found).await?,
            false => found,
        };
        Ok(self.event_of(found))
    }

    /// Waits until the page is another one than that of the last event.
    async fn watch(&mut self) -> Result<FlowEvent, PageError> {
        let page = self.page().await?;
        loop {
            let found = page.inspect(WATCH_WAIT_MS).await?;
            let before = self.memory.page.as_ref();
            if before.is_none_or(|before| !is_same_page(before, &found)) {
                return Ok(self.event_of(found));
            }
            sleep(WATCH_INTERVAL).await;
        }
    }

    /// Returns the event about a page, and remembers the page.
    fn event_of(&mut self, page: InspectedPage) -> FlowEvent {
        let mark = self.row.page_mark.as_deref();
        let mark: Option<PageMark> = mark.and_then(|mark| serde_json::from_str(mark).ok());
        let identifiers = self.memory.identifiers.iter();
        let identifiers: Vec<&str> = identifiers.map(ExposeSecret::expose_secret).collect();
        let parts = &self.services.parts;
        let findings = parts.findings(self.connection, &page, mark.as_ref(), &identifiers);
        let event = match findings {
            Ok(findings) => FlowEvent::PageFound(findings),
            Err(failure) => FlowEvent::PageFailed(failure),
        };
        self.memory.page = Some(page);
        event
    }

    /// Enters values into the form, and submits it.
    async fn enter(
        &mut self,
        host: &str,
        interaction: Option<&InteractionId>,
        from_person: &[AnswerEntry],
        from_credential: &[CredentialEntry],
    ) -> Result<FlowEvent, PageError> {
        let page = self.page().await?;
        let credential = match from_credential.is_empty() {
            true => Ok(None),
            false => self.read_credential().await,
        };
        let Ok(credential) = credential else {
            return Ok(FlowEvent::Filled(EntryOutcome::CredentialUnavailable));
        };
        // The settings may have changed since the page was found.
        let origin = page.sites.origin_of(host);
        if !origin.is_permitted() {
            return Ok(FlowEvent::Filled(EntryOutcome::OriginRefused));
        }
        if credential
            .as_ref()
            .is_some_and(|found| !origin.is_for(found.sso_provider()))
        {
            return Ok(FlowEvent::Filled(EntryOutcome::CredentialUnavailable));
        }
        let parts = &self.services.parts;
        let known = self.answers().await;
        let entries = entries_of(&known, interaction, (from_person, from_credential));
        let expected = from_person.len() + from_credential.len();
        if entries.is_empty() || entries.len() < expected {
            return Ok(FlowEvent::Filled(EntryOutcome::NotSubmitted));
        }
        let browser = &page.browser;
        let filled = parts.filler.enter_login(browser, host, credential, entries);
        let outcome = match filled.await {
            Ok(response) => EntryOutcome::from(&response),
            Err(FillPageError::Material(_) | FillPageError::Credential(_)) => {
                EntryOutcome::CredentialUnavailable
            }
            Err(FillPageError::Agent(AgentError::Rejected {
                status: StatusCode::FORBIDDEN,
                ..
            })) => EntryOutcome::OriginRefused,
            Err(error) => {
                tracing::info!(flow = %self.row.id(), %error, "a login form was not filled");
                page.check_run().await?;
                EntryOutcome::NotSubmitted
            }
        };
        Ok(FlowEvent::Filled(outcome))
    }

    /// Returns the page in front of the flow's browser, once everything is known that no text of a
    /// page may contain.
    async fn page(&mut self) -> Result<LoginPage<'a>, PageError> {
        while !self.memory.has_read_credential {
            match self.read_credential().await {
                Err(error) if is_temporary_failure(&error) => {
                    tracing::info!(flow = %self.row.id(), %error, "cannot read a credential yet");
                    sleep(RETRY_DELAY).await;
                }
                _ => self.memory.has_read_credential = true,
            }
        }
        let answers = self.answers().await;
        let redacted = self.memory.stored.iter().chain(answers.values()).cloned();
        let redacted = redacted.collect();
        let parts = &self.services.parts;
        let id = self.row.flow.browser().ok_or(PageError::BrowserLost)?;
        let page = parts.page(self.connection, id, self.memory.run, redacted);
        let page = page.await?;
        self.memory.run = Some(page.run);
        Ok(page)
    }

    /// Returns the values that the person has submitted.
    async fn answers(&self) -> Answers {
        loop {
            match answers::open(&self.services.parts.secrets, self.row).await {
                Ok(answers) => return answers,
                Err(error) => {
                    tracing::warn!(flow = %self.row.id(), %error, "cannot read answers yet");
                    sleep(RETRY_DELAY).await;
                }
            }
        }
    }
}

/// Returns the values for the fields of a form, as far as they are known.
fn entries_of(
    known: &Answers,
    interaction: Option<&InteractionId>,
    (from_person, from_credential): (&[AnswerEntry], &[CredentialEntry]),
) -> Vec<LoginEntry> {
    let mut entries = Vec::new();
    for answer in from_person {
        let value = interaction.and_then(|id| known.value_of(id, &answer.key));
        let selector = FillSelector::parse(answer.selector.clone());
        if let (Some(value), Ok(selector)) = (value, selector) {
            entries.push(LoginEntry {
                selector,
                name: field_name(answer.kind, &answer.value_name),
                value: LoginValue::Submitted(value.clone()),
            });
        }
    }
    for stored in from_credential {
        if let Ok(selector) = FillSelector::parse(stored.selector.clone()) {
            entries.push(LoginEntry {
                selector,
                name: field_name(stored.kind, &stored.value_name),
                value: LoginValue::Stored(stored.value_name.clone()),
            });
        }
    }
    entries
}

/// Returns whether another attempt to read a credential may succeed.
fn is_temporary_failure(error: &MaterialError) -> bool {
    matches!(
        error,
        MaterialError::Lookup(LookupError::ProviderFailed { .. })
            | MaterialError::Credential(CredentialError::Store(_) | CredentialError::Secret(_))
            | MaterialError::Provider(ProviderServiceError::Store(_))
    )
}

/// Returns the idempotency key of the browser of a flow.
pub(super) fn creation_of(row: &AuthFlowRow) -> Creation {
    Creation {
        key: format!("login {}", row.id()),
        request_digest: [0; 32],
    }
}

/// Returns a name from which the agent knows the meaning of a field.
fn field_name(kind: FieldKind, value_name: &str) -> String {
    match kind {
        FieldKind::Code => "code".to_owned(),
        FieldKind::Password | FieldKind::NewPassword => "password".to_owned(),
        FieldKind::Identifier | FieldKind::SecurityAnswer | FieldKind::Text => {
            value_name.to_owned()
        }
    }
}
