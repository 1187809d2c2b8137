//! The tables as sea-orm entities. Times are milliseconds since the Unix epoch, which sort and
//! compare alike on every database.

pub mod api_key;
pub mod audit_log;
pub mod auth_connection;
pub mod auth_flow;
pub mod auth_flow_state;
pub mod auth_timeline_entry;
pub mod browser;
pub mod browser_tag;
pub mod control_process;
pub mod credential;
pub mod credential_field;
pub mod credential_provider;
pub mod data_key;
pub mod host;
pub mod host_launch;
pub mod join_token;
pub mod organization;
pub mod pool;
pub mod pool_browser;
pub mod pool_waiter;
pub mod profile;
pub mod profile_attachment;
pub mod profile_blob_removal;
pub mod profile_operation;
pub mod profile_version;
pub mod profile_write_lock;
pub mod project;
pub mod purge_clock;
pub mod replay;
pub mod retired_key;
pub mod signing_key;
pub mod totp_step;
pub mod webhook;
pub mod webhook_delivery;
