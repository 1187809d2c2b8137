//! The table of the timeline of auth connections.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "auth_timeline")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub connection_id: String,
    /// `login`, `reauth` or `health_check`.
    pub event_type: String,
    /// The login flow. NULL for a health check.
    pub flow_id: Option<String>,
    /// The status of the flow, or that of the connection for a health check.
    pub status: String,
    pub previous_status: Option<String>,
    pub step: Option<String>,
    pub error_code: Option<String>,
    pub website_error: Option<String>,
    pub browser_id: Option<String>,
    pub replay_id: Option<String>,
    pub created_at: i64,
    /// The time at which the flow or the health check has ended.
    pub completed_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}
