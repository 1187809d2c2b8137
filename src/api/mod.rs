//! The wire vocabulary: ids and types, importing nothing of ours.

mod error;
pub mod ids;
pub mod viewport;

pub use error::{ErrorBody, ErrorDetail};
