//! The table of hosts: one narrow row per host, updated in place.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "hosts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// `local` or `registered`.
    pub fleet: String,
    pub state: String,
    /// The number of the agent's session. It grows with each.
    pub generation: i64,
    /// The browser that the host is reserved for or leased to. Unique: a browser has one host.
    pub session_id: Option<String>,
    /// Whether the host ends with its session instead of getting another one.
    pub draining: bool,
    /// Whether its agent takes no session until it has started again.
    pub restarting: bool,
    pub headless: bool,
    pub kiosk_mode: bool,
    /// The largest viewport. NULL for the largest that there is.
    pub max_width: Option<i32>,
    pub max_height: Option<i32>,
    /// The rest is known of registered hosts only.
    pub address: Option<String>,
    /// Changes when the machine is started again.
    pub boot_id: Option<String>,
    pub version: Option<String>,
    /// JSON.
    pub labels: Option<String>,
    /// JSON.
    pub capabilities: Option<String>,
    /// Identifies the machine. Unique.
    pub public_key: Option<Vec<u8>>,
    pub heartbeat_at: Option<i64>,
    pub created_at: i64,
    /// When the state last changed.
    pub changed_at: i64,
    /// The control process that changed it last, except by a lease, and does what follows from
    /// that.
    pub process_id: Option<i32>,
    /// Whether the last session of a retiring host has ended at the agent, and control has all that
    /// is to be fetched from it.
    pub settled: bool,
    /// The pool that the host is reserved for.
    pub pool_id: Option<String>,
    /// The number of times that the host was leased from a pool.
    pub lease_count: i64,
}

impl ActiveModelBehavior for ActiveModel {}
