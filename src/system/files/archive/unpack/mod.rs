//! Unpacking archives that nobody vouches for, into a new directory.
//!
//! Nothing is written outside that directory, whatever the archive says: each entry's directories are opened one by one without following a
//! link, and no link may lead out. What an archive may grow to is bounded.

use std::{io, sync::Arc};

use parking_lot::Mutex;

mod meter;
mod read_ahead;
mod staging;
mod tar_zstd;
mod upload_channel;
mod zip;

pub use tar_zstd::unpack as unpack_tar_zstd;
pub use upload_channel::{UploadReader, UploadSender, upload_channel};
pub use zip::unpack as unpack_zip;

/// The entries an archive may have that is unpacked.
pub const MAX_ENTRIES: usize = 250_000;

/// What an archive may come to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// How many times as large as the archive its content may be, beyond the first 64 MiB.
    pub ratio: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// What is wrong with the archive.
    #[error("{0}")]
    Invalid(String),
    #[error("holds more than {0} bytes, the limit")]
    TooLarge(u64),
    #[error("holds more than {0} times its own size, the limit")]
    TooDense(u64),
    /// The archive did not come whole.
    #[error("broke off")]
    Truncated,
    #[error("was given up, as the server is stopping")]
    ShuttingDown,
    #[error(transparent)]
    Io(io::Error),
}

impl UnpackError {
    fn bad(what: impl Into<String>) -> Self {
        UnpackError::Invalid(what.into())
    }

    fn entry(name: &str, what: &str) -> Self {
        // Names come from outside, and may be as long as they like.
        let name: String = name.chars().take(200).collect();
        UnpackError::Invalid(format!("its entry `{}` {what}", name.escape_debug()))
    }
}

/// Why reading failed. The readers between it and whoever asks make what they like of an error, so it is kept beside them.
#[derive(Debug, Clone, Default)]
struct Cause(Arc<Mutex<Option<UnpackError>>>);

impl Cause {
    /// The error to be returned in its place.
    fn set(&self, error: UnpackError) -> io::Error {
        let text = error.to_string();
        let mut cause = self.0.lock();
        cause.get_or_insert(error);
        io::Error::other(text)
    }

    /// What an error of the archive's reader comes from; by itself it says that the archive is not one.
    fn of(&self, error: &io::Error) -> UnpackError {
        let mut cause = self.0.lock();
        cause
            .take()
            .unwrap_or_else(|| UnpackError::bad(format!("cannot be read: {error}")))
    }
}
