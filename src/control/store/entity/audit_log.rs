//! The table of the audit log.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "audit_logs")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub created_at: i64,
    pub method: String,
    pub path: String,
    pub route: String,
    pub service: String,
    pub status: i32,
    pub duration_millis: i64,
    pub client_ip: String,
    pub user_agent: String,
    pub domain: String,
    pub auth_strategy: String,
    pub user_id: Option<String>,
    pub api_key_id: Option<String>,
    pub project_id: Option<String>,
    pub request_id: String,
    pub action: String,
    pub resource: Option<String>,
}

impl ActiveModelBehavior for ActiveModel {}
