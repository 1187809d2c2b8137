//! The table of browsers.

use sea_orm::entity::prelude::*;

#[sea_orm::model]
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "browsers")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    pub name: Option<String>,
    /// The name until the browser ends, then NULL. Unique in its project.
    pub live_name: Option<String>,
    pub state: String,
    pub end_reason: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: i64,
    pub viewport_width: i32,
    pub viewport_height: i32,
    pub refresh_rate: i32,
    pub start_url: Option<String>,
    /// Unique in its project. Set to NULL when an expired key is used again.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request that had the key.
    pub request_digest: Option<Vec<u8>>,
    pub created_at: i64,
    pub deleted_at: Option<i64>,
    /// The host that the browser runs on, or ran on.
    pub host_id: Option<String>,
    /// The generation of the host that is this browser.
    pub host_generation: Option<i64>,
    /// When a browser on a registered host was last known to be in use.
    pub used_at: Option<i64>,
    /// The control process that creates or ends the browser.
    pub process_id: Option<i32>,
    /// The pool that the browser was leased from, which may be deleted since, and its name.
    pub pool_id: Option<String>,
    pub pool_name: Option<String>,
    /// The profile that the browser starts with.
    pub profile_id: Option<String>,
    /// Whether the profile gets a new version when the browser ends.
    pub save_changes: bool,
}

impl ActiveModelBehavior for ActiveModel {}
