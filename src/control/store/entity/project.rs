//! The table of projects.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "projects")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    /// The name until the project is deleted, then NULL. Unique, so that the name becomes free.
    pub live_name: Option<String>,
    pub status: String,
    /// 1 for the default project, NULL for the others. Unique, so that there is only one.
    pub default_marker: Option<i32>,
    pub created_at: i64,
    pub updated_at: i64,
    pub deleted_at: Option<i64>,
    /// NULL if that of the organization applies.
    pub max_concurrent_sessions: Option<i32>,
    pub max_concurrent_invocations: Option<i32>,
}

impl ActiveModelBehavior for ActiveModel {}
