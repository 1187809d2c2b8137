//! Unpacking untrusted archives into a new directory.
//!
//! Nothing is written outside that directory, whatever the archive contains: every directory is
//! opened one path component at a time without following links, and links that lead outside are
//! rejected. The number of entries and the size of the content are limited.
//!
//! ```text
//! tar.zst: UploadSender ─► UploadReader ─► zstd ─► ReadAhead ─► tar ─► StagingDirectory
//!                          (async to blocking)     (own thread)
//!                                                      └► EntryTree: only checks (check_tar_zstd)
//! zip:     file ─► zip ─► StagingDirectory
//! ```
//!
//! A [`meter`] counts compressed and uncompressed bytes along the way and enforces the limits.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use parking_lot::Mutex;

mod entry_path;
mod entry_tree;
#[cfg(test)]
pub(crate) mod fuzz;
mod meter;
#[cfg(test)]
pub(crate) mod raw_tar;
#[cfg(test)]
pub(crate) mod raw_zip;
mod read_ahead;
mod staging;
mod tar_zstd;
mod upload_channel;
mod zip;
mod zip_directory;

pub use entry_tree::{ArchiveSummary, EntryVisitor};
pub use tar_zstd::{check as check_tar_zstd, unpack as unpack_tar_zstd};
pub use upload_channel::{UploadReader, UploadSender, upload_channel};
pub use zip::unpack as unpack_zip;

/// The limit on entries of an archive to be unpacked.
pub const MAX_ENTRIES: usize = 250_000;

/// The value of [`UnpackLimits::ratio`] without a limit.
pub const UNLIMITED_RATIO: u64 = u64::MAX;

/// The limits on the content of an archive to be unpacked.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// The total size of all files in bytes.
    pub bytes: u64,
    /// The ratio of the total size to the size of the archive. It applies beyond the first 64 MiB.
    pub ratio: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive is malformed, or has unsupported content.
    #[error("{0}")]
    Invalid(String),
    #[error("unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("unpacks to more than {0} times its own size")]
    TooDense(u64),
    /// The upload ended before the archive was complete.
    #[error("is truncated")]
    Truncated,
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Io(io::Error),
}

impl UnpackError {
    fn invalid(message: impl Into<String>) -> Self {
        UnpackError::Invalid(message.into())
    }

    fn entry(name: &str, message: &str) -> Self {
        // Names are untrusted and may be very long.
        let name: String = name.chars().take(200).collect();
        UnpackError::Invalid(format!("its entry `{}` {message}", name.escape_debug()))
    }
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// The first error of the readers below an archive reader. It is stored here because the archive
/// reader may replace the error it is given. Clones share the error.
#[derive(Debug, Clone, Default)]
struct RootCause(Arc<Mutex<Option<UnpackError>>>);

impl RootCause {
    /// Stores an error, and returns one to be returned in its place.
    fn record(&self, error: UnpackError) -> io::Error {
        let text = error.to_string();
        self.0.lock().get_or_insert(error);
        io::Error::other(text)
    }

    /// Returns the cause of an error of the archive reader. An error without a recorded cause means
    /// that the archive is malformed.
    fn of(&self, error: &io::Error) -> UnpackError {
        let cause = self.0.lock().take();
        cause.unwrap_or_else(|| UnpackError::invalid(format!("cannot be read: {error}")))
    }
}
