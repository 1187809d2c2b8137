//! The table of replays.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "replays")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    pub browser_id: String,
    pub state: String,
    pub end_reason: Option<String>,
    pub duration_millis: Option<i64>,
    pub size_bytes: Option<i64>,
    pub started_at: i64,
    pub finished_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}
