//! Chromium's DevTools endpoint: connections, tabs and command-line flags.

pub mod chromium_flags;
pub mod connection;
pub mod devtools;
pub mod socket;
pub mod tab;
