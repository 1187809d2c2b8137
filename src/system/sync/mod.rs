//! Helpers for threads that block, outside the async runtime, and for work that must not stop.
//!
//! ```text
//! detach_on_drop  runs a future to its end, also if its caller stops waiting
//! job_thread      runs jobs from async code one after the other on a dedicated thread
//! poll            waits for descriptors with ppoll(2)
//! waker           interrupts such a wait from another thread, through an eventfd
//! ```

pub mod detach_on_drop;
pub(in crate::system) mod job_thread;
pub(in crate::system) mod poll;
pub mod waker;
