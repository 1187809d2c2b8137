//! Profiles: stored user-data directories that sessions start from.
//!
//! - [`inspection`]: checks an archive of a profile, and reads what it has.

pub mod inspection;
