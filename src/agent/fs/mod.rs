//! Files and directories of the browser's host.

pub mod archives;
pub mod drafts;
pub mod files;
pub mod unzip;
pub mod upload;
pub mod watches;
