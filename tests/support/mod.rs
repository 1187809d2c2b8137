//! The real parts a test starts.

pub mod dev;
pub mod wait;
