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
    pub created_at: i64,
    pub updated_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
