//! The daemon beside one browser.
