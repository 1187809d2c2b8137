//! `/browsers`.

mod bad_input;
