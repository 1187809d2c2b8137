//! Berth: browsers for agents, tests and data work.
//!
//! A request only moves downwards: `routes` → domain → `system` or `store`; `api` may be imported by all.

pub mod agent;
pub mod api;
pub mod backoff;
pub mod cli;
pub mod control;
pub mod dev;
pub mod http;
pub mod lines;
pub mod request_scope;
pub mod shutdown;
mod state_dir;
pub mod streams;
pub mod system;
