//! The thin control plane in front of many agents.

pub mod activity;
pub mod session_token;
