//! The wire vocabulary: ids and types, importing nothing of ours.

pub mod agent;
pub mod api_keys;
pub mod automation;
pub mod browsers;
pub mod clipboard;
pub mod computer;
mod error;
pub(crate) mod field;
pub mod fs;
pub mod groups;
pub mod ids;
pub mod keys;
pub mod live;
pub mod logs;
pub mod name;
pub mod paging;
pub mod process;
pub mod replays;
pub mod screenshot;
pub mod start_url;
pub mod time;
pub mod viewport;

pub use error::{ErrorBody, ErrorDetail};
