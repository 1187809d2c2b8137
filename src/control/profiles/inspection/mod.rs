//! Reads archives of user-data directories and lists what they contain.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use tokio_util::sync::CancellationToken;

use crate::system::files::archive::unpack::{UnpackError, UnpackLimits, unpack_tar_zstd};

/// The limits of an archive's content.
#[derive(Debug, Clone, Copy)]
pub struct InspectLimits {
    pub unpacked_bytes: u64,
    pub ratio: u64,
}

/// The content of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    pub chromium_version: Option<String>,
    pub entries: u64,
    pub unpacked_bytes: u64,
    /// The number of cookies by their domain.
    pub cookies: BTreeMap<String, u64>,
    /// The origins with storage.
    pub origins: Vec<String>,
    pub skipped: Vec<String>,
}

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("is of Chromium {version}, newer than {accepted}")]
    NewerChromium { version: String, accepted: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads an archive to its end and returns what it contains. Blocks.
pub fn inspect(
    archive: impl Read + Send,
    work: &Path,
    limits: InspectLimits,
    _chromium: Option<&str>,
) -> Result<Inspection, InspectError> {
    let into = work.join("content");
    std::fs::create_dir(&into)?;
    let stop = CancellationToken::new();
    let limits = UnpackLimits {
        bytes: limits.unpacked_bytes,
        ratio: limits.ratio,
    };
    let unpacked = unpack_tar_zstd(archive, &into, limits, &stop, |_| false);
    match unpacked {
        Ok(()) => Ok(Inspection::default()),
        Err(UnpackError::Io(error)) => Err(error.into()),
        Err(error) => Err(InspectError::Invalid(error.to_string())),
    }
}
