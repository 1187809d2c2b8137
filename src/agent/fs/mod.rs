//! Files and directories of the browser's host.

pub mod archives;
pub mod draft;
pub mod drafts;
pub mod files;
pub mod moves;
pub mod unzip;
pub mod upload;
pub mod watches;
