//! The rows of login flows and of their states.

use chrono::{DateTime, Utc};

use crate::{
    api::{
        auth_flow::ManagedAuthState,
        ids::{AuthConnectionId, FlowId, ProjectId, ReplayId},
    },
    control::{
        auth_connections::flow::Flow,
        store::{
            ControlProcessId, StoreError, corrupt,
            entity::{auth_flow, auth_flow_state},
            from_millis, revision_column, to_millis,
        },
    },
};

/// A row of the table of login flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthFlowRow {
    pub project_id: ProjectId,
    pub connection_id: AuthConnectionId,
    pub flow: Flow,
    /// Grows with each change.
    pub version: u64,
    /// The page with which later ones are compared, as JSON.
    pub page_mark: Option<String>,
    /// The values that the person has submitted, while the flow is in progress.
    pub answers: Option<SealedAnswers>,
    /// The public part of the API key with which the flow was started.
    pub started_by: Option<String>,
    /// The code of the hosted login page, unless it was used.
    pub handoff: Option<HandoffCode>,
    pub record_session: bool,
    /// The recording of the browser, once there is one.
    pub replay_id: Option<ReplayId>,
    /// The process that drives the browser.
    pub driver: Option<ControlProcessId>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// Sealed values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedAnswers {
    pub key_version: u32,
    pub bytes: Vec<u8>,
}

/// The digest of a code for the hosted login page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffCode {
    pub digest: String,
    pub expires_at: DateTime<Utc>,
}

/// A state of a flow, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowStateRow {
    /// Grows with each state of the flow.
    pub number: u64,
    pub state: ManagedAuthState,
}

impl TryFrom<auth_flow::Model> for AuthFlowRow {
    type Error = StoreError;

    fn try_from(row: auth_flow::Model) -> Result<Self, StoreError> {
        let answers = row.answers_key_version.zip(row.sealed_answers);
        let answers = answers.map(|(version, bytes)| match version.try_into() {
            Ok(key_version) => Ok(SealedAnswers { key_version, bytes }),
            Err(_) => Err(corrupt("key version", version)),
        });
        let handoff = row.handoff_digest.zip(row.handoff_expires_at);
        let handoff = handoff.map(|(digest, expires_at)| {
            let expires_at = from_millis(expires_at);
            expires_at.map(|expires_at| HandoffCode { digest, expires_at })
        });
        Ok(AuthFlowRow {
            project_id: row
                .project_id
                .parse()
                .map_err(|_| corrupt("project id", &row.project_id))?,
            connection_id: row
                .connection_id
                .parse()
                .map_err(|_| corrupt("auth connection id", &row.connection_id))?,
            flow: serde_json::from_str(&row.state).map_err(|_| corrupt("login flow", &row.id))?,
            version: row
                .version
                .try_into()
                .map_err(|_| corrupt("version", row.version))?,
            page_mark: row.page_mark,
            answers: answers.transpose()?,
            started_by: row.started_by,
            handoff: handoff.transpose()?,
            record_session: row.record_session,
            replay_id: row
                .replay_id
                .map(|id| id.parse().map_err(|_| corrupt("replay id", id)))
                .transpose()?,
            driver: row.driver.map(ControlProcessId),
            created_at: from_millis(row.created_at)?,
            ended_at: row.ended_at.map(from_millis).transpose()?,
        })
    }
}

impl AuthFlowRow {
    #[must_use]
    pub fn id(&self) -> &FlowId {
        self.flow.id()
    }

    pub(super) fn to_model(&self) -> Result<auth_flow::Model, StoreError> {
        let connection = self.connection_id.to_string();
        let answers = self.answers.clone();
        let handoff = self.handoff.clone();
        Ok(auth_flow::Model {
            id: self.id().to_string(),
            project_id: self.project_id.to_string(),
            active_connection_id: self.ended_at.is_none().then(|| connection.clone()),
            connection_id: connection,
            state: serde_json::to_string(&self.flow)
                .map_err(|error| corrupt("login flow", error))?,
            version: revision_column(self.version)?,
            page_mark: self.page_mark.clone(),
            answers_key_version: answers.as_ref().map(|answers| answers.key_version.into()),
            sealed_answers: answers.map(|answers| answers.bytes),
            started_by: self.started_by.clone(),
            handoff_expires_at: handoff.as_ref().map(|code| to_millis(code.expires_at)),
            handoff_digest: handoff.map(|code| code.digest),
            record_session: self.record_session,
            replay_id: self.replay_id.as_ref().map(ReplayId::to_string),
            driver: self.driver.map(|id| id.0),
            created_at: to_millis(self.created_at),
            ended_at: self.ended_at.map(to_millis),
        })
    }
}

impl TryFrom<auth_flow_state::Model> for FlowStateRow {
    type Error = StoreError;

    fn try_from(row: auth_flow_state::Model) -> Result<Self, StoreError> {
        Ok(FlowStateRow {
            number: row
                .number
                .try_into()
                .map_err(|_| corrupt("number", row.number))?,
            state: serde_json::from_str(&row.state)
                .map_err(|_| corrupt("state of a login", &row.flow_id))?,
        })
    }
}
