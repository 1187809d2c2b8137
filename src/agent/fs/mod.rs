//! Files and directories of the browser's host.

pub mod archives;
pub mod atomic_file;
pub mod files;
pub mod moves;
pub mod temp_files;
pub mod unzip;
pub mod upload;
pub mod watches;
