//! The table of the versions of profiles. A row never changes.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profile_versions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub profile_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    /// The SHA-256 of the archive, which is its key in the blob store.
    pub blob: String,
    pub size_bytes: i64,
    /// The content of the archive, as JSON.
    pub receipt: String,
    pub chromium_version: Option<String>,
    /// The version that this one repeats.
    pub restored_from: Option<i64>,
    /// Whether a health check has saved it.
    pub is_health_check: bool,
    pub created_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
