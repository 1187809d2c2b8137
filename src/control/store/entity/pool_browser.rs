//! The table of the browsers of pools that no client has: those being started, idle or discarded.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "pool_browsers")]
pub struct Model {
    /// The session of the host until a client leases the browser, which then has another id.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub pool_id: String,
    pub state: String,
    /// The configuration that the browser was started with.
    pub config_hash: String,
    /// The version of the profile that was loaded, 0 for none.
    pub profile_version: i64,
    /// The flushes of the pool before the browser was started.
    pub flush_count: i64,
    /// NULL until it has one.
    pub host_id: Option<String>,
    pub host_generation: Option<i64>,
    /// The control process that starts or discards the browser.
    pub process_id: Option<i32>,
    /// When the state last changed.
    pub changed_at: i64,
}

impl ActiveModelBehavior for ActiveModel {}
