//! The table of login flows.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "auth_flows")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    pub connection_id: String,
    /// The same while the flow is in progress, else NULL. Unique.
    pub active_connection_id: Option<String>,
    /// The state machine as JSON. It has no secrets.
    pub state: String,
    /// Grows with each change.
    pub version: i64,
    /// The page with which later ones are compared, as JSON.
    pub page_mark: Option<String>,
    pub answers_key_version: Option<i64>,
    /// The values that the person has submitted. NULL as soon as the flow has ended.
    pub sealed_answers: Option<Vec<u8>>,
    /// The public part of the API key with which the flow was started.
    pub started_by: Option<String>,
    /// The digest of the code of the hosted login page. NULL as soon as it was used.
    pub handoff_digest: Option<String>,
    pub handoff_expires_at: Option<i64>,
    pub record_session: bool,
    /// The recording of the browser, once there is one.
    pub replay_id: Option<String>,
    /// The process that drives the browser.
    pub driver: Option<i32>,
    pub created_at: i64,
    pub ended_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}
