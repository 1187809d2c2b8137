//! Files and directories of the browser's host.

pub mod watches;
