//! The thin control plane in front of many agents.

pub mod activity;
pub mod proxy;
pub mod session_token;
