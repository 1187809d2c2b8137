//! `/profiles`.

mod archive;
mod bad_input;
mod collection;
mod item;
