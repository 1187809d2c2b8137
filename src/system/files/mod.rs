//! Files and directories: archives, change notification and removal. Everything blocks except
//! [`wait`] and the receiving ends of archive streams.
//!
//! - [`archive`]: tar.zst and zip archives of directories, and unpacking untrusted ones.
//! - [`watcher`]: changes below directories, from inotify.
//! - [`wait`]: waiting for one file that another program writes.
//! - [`root`]: where absolute paths start.
//! - [`resolve`]: paths to descriptors, under the rule for links in sticky directories.
//! - [`directory`]: open directories whose entries are reached by descriptor.
//! - [`owner`]: changing the owner of trees.
//! - [`protected`]: directories that paths of clients do not lead to.
//! - [`remove`]: removal despite restrictive permissions.
//! - [`space`]: the sizes of file systems.
//! - [`virtual_fs`]: recognising file systems such as `/proc`.

pub mod archive;
pub mod directory;
pub mod owner;
pub mod protected;
pub mod remove;
pub mod resolve;
pub mod root;
pub mod space;
pub mod virtual_fs;
pub mod wait;
pub mod watcher;
