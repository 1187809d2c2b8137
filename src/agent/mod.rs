//! The daemon beside one browser.

pub mod chromium;
pub mod display;
pub mod settings;
pub mod state_dir;
