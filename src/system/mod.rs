//! One file per outside thing, the only importer of its crate.

pub mod script_protocol;
pub mod script_worker;
