//! One file per outside thing, the only importer of its crate.
