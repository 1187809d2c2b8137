//! Processes of this system: children, sessions, terminals and what `/proc` shows of them.

pub mod child;
pub mod freeze;
pub mod open_files;
pub mod pty;
pub mod run;
pub mod session;
pub mod stat;
pub mod tree;
