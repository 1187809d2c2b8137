//! Hosts and the sessions that they run, one after another.

pub mod state;
