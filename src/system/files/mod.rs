//! Files and directories: archives, watches and removal.

pub mod archive;
pub mod remove;
pub mod virtual_fs;
pub mod wait;
pub mod watcher;
