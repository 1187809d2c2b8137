//! Threads that block on descriptors, and how to wake them.

pub(in crate::system) mod job_thread;
pub(in crate::system) mod poll;
pub mod waker;
