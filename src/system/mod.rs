//! One file per outside thing, the only importer of its crate.

pub mod archive;
pub mod cdp;
pub mod cdp_socket;
pub mod child;
pub mod chromium_flags;
pub mod clipboard;
pub mod devtools;
pub mod file_wait;
pub mod freeze;
pub mod input;
mod job_thread;
pub mod jpeg;
pub mod open_files;
pub mod proc_stat;
pub mod process_run;
pub mod process_tree;
pub mod pty;
pub mod recorder;
pub mod remove;
pub mod screen;
pub mod script_protocol;
pub mod script_worker;
pub mod session;
pub mod sound;
pub mod virtual_fs;
pub mod watcher;
pub mod x11;
