//! The X server: connection, screen, input and clipboard.

pub mod clipboard;
pub mod input;
mod link;
pub mod screen;
pub mod server;
