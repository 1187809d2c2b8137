//! The hosts that register themselves, such as VMs that boot an agent.
//!
//! - [`JoinTokens`]: the secrets with which unknown hosts register.

mod join_tokens;

pub use join_tokens::{FORMAT as JOIN_TOKEN_FORMAT, JoinTokenError, JoinTokens};
