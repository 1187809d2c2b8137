//! Files and directories of the browser's host.

pub mod files;
pub mod watches;
