//! The fleet of hosts that register themselves.

mod join_tokens;

pub use join_tokens::{CreateJoinToken, JoinToken, JoinTokenWithSecret, TokenUses};
