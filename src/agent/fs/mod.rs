//! Files and directories of the machine the browser runs on: the service behind the `/fs` routes.
//!
//! - [`access`]: where the paths of a session lead, and whether a change outlives it.
//! - [`files`]: reading, listing and changing single files; [`FileError`](files::FileError).
//! - [`generated_reads`]: reading files whose content the kernel generates.
//! - [`atomic_file`]: a file that appears under its name only when it is complete.
//! - [`temp_files`]: the journal of temporary files that are not below the state directory.
//! - [`upload`]: several files at once. [`unzip`]: a directory from a zip archive.
//! - [`archives`]: directories as archives, and the limit on concurrent archives.
//! - [`merge`]: a tree that was built in a temporary directory, moved to its destination.
//! - [`moves`]: renaming, also across file systems; `tree_copy` makes the copies.
//! - [`watches`]: watched directories and their buffered events.
//!
//! Everything blocks except `archives` and `watches`; the routes call it from blocking threads.
//!
//! A write never shows a partial result. It goes to a temporary file or directory on the target's
//! own file system, and a rename publishes it:
//!
//! ```text
//! request body ──► temporary file beside the target ── rename ──► target
//!                    │ recorded in the journal first
//!                    └─ dropped or failed: removed; after a crash: removed by the next agent
//! ```
//!
//! A path is resolved once, to descriptors ([`crate::system::files::resolve`]). From then on an
//! operation works relative to them and follows no symbolic link, so that a user who may rename
//! entries of a directory cannot direct an operation elsewhere while it runs. No path leads to the
//! agent's own files ([`crate::system::files::protected`]).
//!
//! `Watches` owns its table of watches, and runs one task per watch that ends it when it has had no
//! reader for too long, or when the agent shuts down.

pub mod access;
pub mod archives;
pub mod atomic_file;
pub mod files;
pub mod generated_reads;
mod merge;
pub mod moves;
pub mod temp_files;
#[cfg(test)]
mod tests;
mod tree_copy;
pub mod unzip;
pub mod upload;
pub mod watches;
