//! The table of profiles.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profiles")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    pub name: Option<String>,
    /// The name until the profile is deleted, then NULL. Unique in its project.
    pub live_name: Option<String>,
    /// The number of the current version, 0 before the first one.
    pub version: i64,
    /// The size of the current version's archive.
    pub size_bytes: Option<i64>,
    pub created_at: i64,
    pub updated_at: i64,
    pub last_used_at: Option<i64>,
    pub deleted_at: Option<i64>,
    /// Why the last save failed. NULL once a later one has succeeded.
    pub save_error: Option<String>,
    pub save_failed_at: Option<i64>,
}

impl ActiveModelBehavior for ActiveModel {}
