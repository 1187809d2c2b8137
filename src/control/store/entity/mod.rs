//! The tables as rows. Times are whole milliseconds since the epoch: they sort and compare alike on every database.

pub mod api_key;
pub mod browser;
pub mod browser_tag;
pub mod project;
pub mod replay;
