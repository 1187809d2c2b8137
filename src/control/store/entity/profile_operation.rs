//! The table of saves and loads of profiles that are in progress.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "profile_operations")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub profile_id: String,
    /// The profile, if this is a save. Unique, so that a profile has one save at a time.
    pub saving_profile_id: Option<String>,
    /// The current version when the save began.
    pub base_version: i64,
    /// The blob that the operation refers to, which must not be removed.
    pub blob: Option<String>,
    /// The control process that runs the operation.
    pub process_id: Option<i32>,
    pub started_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
