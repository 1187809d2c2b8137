//! Begins logins, and passes on what the person answers.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use super::{
    Logins,
    answers::{self, Answers},
};
use crate::{
    api::{
        auth_flow::{FlowType, InteractionId, SubmitAuthFlow, SubmittedAnswer},
        credential_fill::{FillFieldName, FillValues},
        ids::{AuthConnectionId, FlowId},
    },
    control::{
        auth_connections::{
            flow::{AnswerRefusal, Effect, Flow, FlowAnswer, FlowEvent, FlowSettings, Transition},
            sites::ConnectionSites,
        },
        secret_token::random_hex,
        secrets::SecretError,
        store::{
            AuthConnectionRow, AuthFlowRow, AuthTimelineListing, AuthTimelineRow,
            CreateAuthFlowError, FlowStateRow, HandoffCode, StoreError,
        },
    },
};

/// The lifetime of a code for the hosted login page.
const HANDOFF_LIFETIME: TimeDelta = TimeDelta::minutes(10);
const HANDOFF_PREFIX: &str = "handoff_";
const HANDOFF_BYTES: usize = 32;
/// The attempts to change a flow that others change at the same time.
const MAX_ATTEMPTS: usize = 10;

/// Why a request to a login was not fulfilled.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("a login of the connection is in progress")]
    InProgress,
    #[error("no auth connection with that id")]
    ConnectionNotFound,
    #[error("no login of the connection is in progress")]
    NoneInProgress,
    #[error("the connection has had no login yet")]
    NoLogin,
    #[error("the code is not valid")]
    InvalidCode,
    #[error("too many attempts")]
    TooManyAttempts,
    #[error(transparent)]
    Refused(#[from] AnswerRefusal),
    #[error("the login is being changed by other requests")]
    Contended,
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A new login.
pub struct BegunLogin {
    pub row: AuthFlowRow,
    /// Opens the hosted login page once.
    pub handoff_code: SecretString,
}

impl Logins {
    /// Begins to log a connection in, with a person. `key` is the public part of the API key.
    pub async fn begin(
        &self,
        connection: &AuthConnectionRow,
        record_session: Option<bool>,
        key: &str,
    ) -> Result<BegunLogin, LoginError> {
        let handoff_code = generate_code();
        let now = Utc::now();
        let begun = begin_flow(connection, true, now);
        let handoff = HandoffCode {
            digest: digest_of(handoff_code.expose_secret()),
            expires_at: now + HANDOFF_LIFETIME,
        };
        let row = AuthFlowRow {
            started_by: Some(key.to_owned()),
            handoff: Some(handoff),
            record_session: record_session.unwrap_or(connection.settings.record_session),
            ..self.new_row(connection, &begun, now)
        };
        self.start(&row, &begun, None).await?;
        Ok(BegunLogin { row, handoff_code })
    }

    /// Begins to log a connection in without a person, unless its schedule has changed since it was
    /// read. Returns the id of the login.
    pub(in crate::control::auth_connections) async fn begin_unattended(
        &self,
        connection: &AuthConnectionRow,
    ) -> Result<FlowId, LoginError> {
        let now = Utc::now();
        let begun = begin_flow(connection, false, now);
        let row = self.new_row(connection, &begun, now);
        let due_in = Some(connection.health.revision);
        self.start(&row, &begun, due_in).await?;
        Ok(row.id().clone())
    }

    /// Returns whether a login of a connection is in progress.
    pub(in crate::control::auth_connections) async fn is_in_progress(
        &self,
        connection: &AuthConnectionId,
    ) -> Result<bool, StoreError> {
        let active = self.inner.parts.store.active_auth_flow(connection).await?;
        Ok(active.is_some())
    }

    fn new_row(
        &self,
        connection: &AuthConnectionRow,
        begun: &Transition,
        now: DateTime<Utc>,
    ) -> AuthFlowRow {
        AuthFlowRow {
            project_id: connection.project_id.clone(),
            connection_id: connection.id.clone(),
            flow: begun.flow.clone(),
            version: 1,
            page_mark: None,
            answers: None,
            started_by: None,
            handoff: None,
            record_session: connection.settings.record_session,
            replay_id: None,
            driver: self.inner.parts.store.process(),
            created_at: now,
            ended_at: None,
        }
    }

    async fn start(
        &self,
        row: &AuthFlowRow,
        begun: &Transition,
        due_in: Option<u64>,
    ) -> Result<(), LoginError> {
        let store = &self.inner.parts.store;
        let created = store.create_auth_flow(row, begun, due_in).await;
        created.map_err(|error| match error {
            CreateAuthFlowError::InProgress => LoginError::InProgress,
            CreateAuthFlowError::ConnectionNotFound => LoginError::ConnectionNotFound,
            CreateAuthFlowError::Store(error) => error.into(),
        })?;
        self.spawn_driver(row.id().clone());
        Ok(())
    }

    /// Passes an answer of the person on to the login in progress, which has to be `flow` if that
    /// is known.
    pub async fn submit(
        &self,
        connection: &AuthConnectionRow,
        flow: Option<&FlowId>,
        request: &SubmitAuthFlow,
    ) -> Result<(), LoginError> {
        let parts = &self.inner.parts;
        let answer = answer_of(&request.answer);
        for _ in 0..MAX_ATTEMPTS {
            let now = Utc::now();
            let mut row = self.in_progress(&connection.id, flow).await?;
            let interaction = request.interaction_id.as_ref();
            let transition = row.flow.answer(interaction, &answer, now)?;
            if let Some(values) = values_of(&request.answer)
                && let Some(interaction) = row.flow.interaction_id()
            {
                let mut known = answers::open(&parts.secrets, &row).await?;
                let sites = ConnectionSites::of(connection);
                add_values(&mut known, (&interaction, sites), &transition, values);
                row.answers = Some(answers::seal(&parts.secrets, &row, &known).await?);
            }
            let advanced = parts.store.advance_auth_flow(row, &transition, now);
            if advanced.await?.is_some() {
                return Ok(());
            }
        }
        Err(LoginError::Contended)
    }

    /// Cancels the login in progress, which has to be `flow` if that is known.
    pub async fn cancel(
        &self,
        connection: &AuthConnectionId,
        flow: Option<&FlowId>,
    ) -> Result<AuthFlowRow, LoginError> {
        for _ in 0..MAX_ATTEMPTS {
            let now = Utc::now();
            let row = self.in_progress(connection, flow).await?;
            let transition = row.flow.apply(FlowEvent::Canceled, now);
            let store = &self.inner.parts.store;
            if let Some(row) = store.advance_auth_flow(row, &transition, now).await? {
                return Ok(row);
            }
        }
        Err(LoginError::Contended)
    }

    /// Returns a login of a connection: `flow` if that is known, else the newest one.
    pub async fn login_of(
        &self,
        connection: &AuthConnectionId,
        flow: Option<&FlowId>,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        match flow {
            Some(flow) => self.find(flow).await,
            None => self.newest(connection).await,
        }
    }

    /// Returns the newest login of a connection, which may be in progress.
    pub async fn newest(
        &self,
        connection: &AuthConnectionId,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        self.inner.parts.store.newest_auth_flow(connection).await
    }

    /// Returns the newest login of each of several connections, if it has one.
    pub async fn newest_of(
        &self,
        connections: &[AuthConnectionId],
    ) -> Result<Vec<AuthFlowRow>, StoreError> {
        self.inner.parts.store.newest_auth_flows(connections).await
    }

    /// Returns a login, unless its connection was deleted.
    pub async fn find(&self, id: &FlowId) -> Result<Option<AuthFlowRow>, StoreError> {
        self.inner.parts.store.find_auth_flow(id).await
    }

    /// Returns up to `limit` states of a login after a number.
    pub async fn states(
        &self,
        id: &FlowId,
        after: u64,
        limit: u64,
    ) -> Result<Vec<FlowStateRow>, StoreError> {
        let store = &self.inner.parts.store;
        store.auth_flow_states(id, after, limit).await
    }

    /// Returns a receiver that is notified when a login may have changed.
    #[must_use]
    pub fn subscribe(&self, id: &FlowId) -> tokio::sync::watch::Receiver<()> {
        self.inner.parts.store.flow_changes().subscribe(id)
    }

    /// Returns the timeline of a connection, newest first, with one more than the limit if there
    /// are more.
    pub async fn timeline(
        &self,
        connection: &AuthConnectionId,
        listing: AuthTimelineListing,
    ) -> Result<Vec<AuthTimelineRow>, StoreError> {
        self.inner
            .parts
            .store
            .auth_timeline(connection, listing)
            .await
    }

    async fn in_progress(
        &self,
        connection: &AuthConnectionId,
        flow: Option<&FlowId>,
    ) -> Result<AuthFlowRow, LoginError> {
        let active = self.inner.parts.store.active_auth_flow(connection).await?;
        let is_selected = |row: &AuthFlowRow| flow.is_none_or(|flow| flow == row.id());
        active.filter(is_selected).ok_or(LoginError::NoneInProgress)
    }
}

fn begin_flow(connection: &AuthConnectionRow, is_attended: bool, now: DateTime<Utc>) -> Transition {
    let settings = FlowSettings {
        flow_type: match connection.last_auth_at {
            None => FlowType::Login,
            Some(_) => FlowType::Reauth,
        },
        is_attended,
        save_credentials: is_attended && connection.settings.save_credentials,
    };
    Flow::begin(FlowId::generate(), settings, now)
}

fn generate_code() -> SecretString {
    let code = random_hex::<HANDOFF_BYTES>();
    SecretString::from(format!("{HANDOFF_PREFIX}{code}"))
}

/// Returns the form in which a code is stored.
pub(super) fn digest_of(code: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(code))
}

/// Returns an answer without its values.
fn answer_of(answer: &SubmittedAnswer) -> FlowAnswer {
    let names = |values: &FillValues| {
        let names = values.iter().map(|(name, _)| name.as_str().to_owned());
        names.collect()
    };
    match answer {
        SubmittedAnswer::Fields(values) => FlowAnswer::FieldNames(names(values)),
        SubmittedAnswer::FieldValues(values) => FlowAnswer::FieldIds(names(values)),
        SubmittedAnswer::MfaOption(id) => FlowAnswer::MfaOption(id.as_str().to_owned()),
        SubmittedAnswer::Choice(id) => FlowAnswer::Choice(id.as_str().to_owned()),
        SubmittedAnswer::SignInOption(id) => FlowAnswer::SignInOption(id.as_str().to_owned()),
        SubmittedAnswer::SsoButton(selector) => FlowAnswer::SsoButton(selector.as_str().to_owned()),
        SubmittedAnswer::SsoProvider(name) => FlowAnswer::SsoProvider(name.as_str().to_owned()),
    }
}

fn values_of(answer: &SubmittedAnswer) -> Option<&FillValues> {
    match answer {
        SubmittedAnswer::Fields(values) | SubmittedAnswer::FieldValues(values) => Some(values),
        _ => None,
    }
}

/// Adds the values that a flow is about to enter.
fn add_values(
    known: &mut Answers,
    (interaction, sites): (&InteractionId, ConnectionSites<'_>),
    transition: &Transition,
    values: &FillValues,
) {
    let Some(Effect::EnterAnswers {
        answers: entries,
        host,
        ..
    }) = &transition.effect
    else {
        return;
    };
    // Those for an identity provider are no credential of the site.
    let is_lasting = sites.origin_of(host).is_site();
    known.add(interaction, (entries, is_lasting), |key| {
        let name = FillFieldName::parse(key.to_owned()).ok()?;
        let value = values.get(&name)?;
        Some(SecretString::from(value.expose()))
    });
}
