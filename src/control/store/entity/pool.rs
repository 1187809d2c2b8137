//! The table of pools.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "pools")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    /// Unique in its project.
    pub name: Option<String>,
    pub size: i32,
    pub fill_rate_per_minute: i32,
    pub timeout_seconds: i64,
    pub max_age_seconds: Option<i64>,
    pub max_leases: Option<i64>,
    /// JSON: what a browser of the pool is started with.
    pub config: String,
    /// Identifies `config`. An idle browser with another one is never leased.
    pub config_hash: String,
    /// The profile of `config`.
    pub profile_id: Option<String>,
    /// Whether a browser that was started with an earlier version of the profile is never leased.
    pub refresh_on_profile_update: bool,
    /// Grows with each flush. An idle browser with an earlier one is never leased.
    pub flush_count: i64,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
