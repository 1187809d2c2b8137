//! Script workers: their processes and the protocol they speak.

pub mod protocol;
pub mod worker;
