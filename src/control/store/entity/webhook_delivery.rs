//! The table of deliveries to webhooks, which is also the queue of those that are still to be made.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "webhook_deliveries")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// May be deleted.
    pub webhook_id: String,
    pub event_type: String,
    /// The body of the request.
    pub payload: String,
    pub status: String,
    /// The number of attempts that have ended.
    pub attempts: i64,
    /// NULL if there is no further attempt.
    pub next_attempt_at: Option<i64>,
    pub last_attempt_at: Option<i64>,
    pub duration_millis: Option<i64>,
    pub response_status: Option<i64>,
    pub response_body: Option<String>,
    pub error: Option<String>,
    pub created_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
