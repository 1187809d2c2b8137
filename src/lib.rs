//! Berth: browsers for agents, tests and data work.
//!
//! Dependencies point downwards: `routes` → domain → `system` or `store`; every module may import
//! `api`. `tests/architecture` enforces this.

#![cfg(feature = "program")]

pub mod agent;
pub mod api;
pub mod backoff;
pub mod cli;
pub mod control;
pub mod dev;
mod error_chain;
pub mod http;
pub mod lines;
mod loopback;
pub mod machine_hooks;
pub mod machine_settings;
pub mod profile_import;
pub(crate) mod rate_limit;
pub mod request_scope;
pub mod service_report;
pub mod shutdown;
mod state_dir;
pub mod streams;
pub mod system;
mod token_setting;
