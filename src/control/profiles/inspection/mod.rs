//! The inspection of an archive of a profile: whether a session can start from it, and what it has.
//!
//! The archive is read once, from its start to its end, and is not unpacked:
//!
//! ```text
//! archive ─► zstd ─► tar ─► rules of a restoration (names, links, sizes)
//!                      ├──► cookie databases ─► temporary files ─► cookies per domain
//!                      └──► names and indexes of storages ─► origins
//! ```
//!
//! An archive with content that cannot be read is still valid; the inspection lists that content.

use std::{collections::BTreeMap, fmt::Display, io, path::Path};

use crate::system::{
    files::archive::unpack::{UNLIMITED_RATIO, UnpackError, UnpackLimits, check_tar_zstd},
    profile::{is_process_file, major_version},
};

mod contents;
mod databases;
#[cfg(test)]
mod fuzz;
mod place;
mod storages;
#[cfg(test)]
mod tests;

use contents::Contents;

/// The limits on an archive.
#[derive(Debug, Clone, Copy)]
pub struct InspectLimits {
    /// The total size of all files in bytes.
    pub unpacked_bytes: u64,
    /// The ratio of that size to the size of the archive. It applies beyond the first 64 MiB.
    pub ratio: u64,
    /// The major version of the newest Chromium that the archive may be of, if there is a limit.
    pub newest_chromium: Option<u32>,
}

impl InspectLimits {
    /// The limits on the archive of a client: those with which agents unpack archives by default.
    pub const UPLOAD: InspectLimits = InspectLimits {
        unpacked_bytes: 16 << 30,
        ratio: 200,
        newest_chromium: None,
    };
    /// The limits on the archive of a browser, which may well have a very compressible profile.
    pub const BROWSER: InspectLimits = InspectLimits {
        ratio: UNLIMITED_RATIO,
        ..Self::UPLOAD
    };
}

/// The content of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The version of the Chromium that used the profile last.
    pub chromium_version: Option<String>,
    /// The number of files, directories and links.
    pub entries: u64,
    /// The total size of the files in bytes.
    pub unpacked_bytes: u64,
    /// The number of cookies by their domain, without expired ones.
    pub cookies: BTreeMap<String, u64>,
    /// The origins with stored data (local storage, IndexedDB, caches, service workers, files), in
    /// order. That of a page in a frame of another site names that site too.
    pub origins: Vec<String>,
    /// The content that could not be read, or was not archived: a path or a kind of content, and
    /// the reason.
    pub skipped: Vec<String>,
}

/// Why an archive is not that of a usable profile.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The archive is malformed, incomplete, or of something else.
    #[error("{0}")]
    Invalid(String),
    /// The archive exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    #[error("is of Chromium {version}, newer than {newest}, the newest of a browser")]
    NewerChromium { version: String, newest: u32 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<UnpackError> for InspectError {
    fn from(error: UnpackError) -> Self {
        let message = error.to_string();
        match error {
            UnpackError::Invalid(_) | UnpackError::Truncated => InspectError::Invalid(message),
            UnpackError::TooLarge(_) | UnpackError::TooDense(_) => InspectError::TooLarge(message),
            UnpackError::ShuttingDown => InspectError::Io(io::Error::other(message)),
            UnpackError::Io(error) => InspectError::Io(error),
        }
    }
}

/// Reads an archive, a tar file compressed with zstd, to its end and checks it. Blocks.
///
/// `work` is a private directory for temporary files, which are removed. `archive` ends the
/// inspection by failing.
///
/// # Errors
/// If a session cannot start from the archive, or it cannot be read.
pub fn inspect(
    archive: impl io::Read + Send,
    work: &Path,
    limits: InspectLimits,
) -> Result<Inspection, InspectError> {
    let newest = limits.newest_chromium;
    let limits = UnpackLimits {
        bytes: limits.unpacked_bytes,
        ratio: limits.ratio,
    };
    let mut contents = Contents::new(work)?;
    let summary = check_tar_zstd(archive, limits, is_process_file, &mut contents)?;
    if !contents.is_user_data {
        let message = "is not of a user-data directory: it has neither `Local State` nor `Default/Preferences` at its top level";
        return Err(InspectError::Invalid(message.to_owned()));
    }
    let version = contents.last_version.take();
    if let Some(version) = &version {
        check_version(version, newest)?;
    }
    let mut inspection = Inspection {
        chromium_version: version,
        entries: summary.entries,
        unpacked_bytes: summary.bytes,
        ..Inspection::default()
    };
    contents.finish(&mut inspection);
    Ok(inspection)
}

/// Rejects a version that is no version, or newer than the newest accepted one. Chromium reads
/// profiles of older versions, and does not start with those of newer ones.
fn check_version(version: &str, newest: Option<u32>) -> Result<(), InspectError> {
    let Some(major) = major_version(version) else {
        let message = format!(
            "its entry `Last Version` has no version: `{}`",
            version.escape_debug()
        );
        return Err(InspectError::Invalid(message));
    };
    match newest {
        Some(newest) if major > newest => Err(InspectError::NewerChromium {
            version: version.to_owned(),
            newest,
        }),
        _ => Ok(()),
    }
}

/// The limit on each of the three lists of an inspection, as JSON, in bytes. A receipt is stored
/// and returned as a whole, and a page of versions has many of them.
const MAX_LIST_BYTES: usize = 128 << 10;
/// The limit on the list of what was skipped; further entries are only counted.
const MAX_SKIPPED: usize = 1_000;
/// The limit on a name, and on a reason, in that list, in characters.
const MAX_NAME_CHARS: usize = 200;

/// The bytes that a list of an inspection may still take.
#[derive(Debug)]
struct ListBudget {
    bytes: usize,
}

impl Default for ListBudget {
    fn default() -> Self {
        ListBudget {
            bytes: MAX_LIST_BYTES,
        }
    }
}

impl ListBudget {
    /// Takes the bytes of an entry. Returns false if there are not as many.
    fn take(&mut self, entry: &str) -> bool {
        /// The count of cookies, and the punctuation.
        const MAX_REST_BYTES: usize = 10;
        let quoted = serde_json::to_string(entry).map_or(usize::MAX, |json| json.len());
        let remaining = self
            .bytes
            .checked_sub(quoted.saturating_add(MAX_REST_BYTES));
        self.bytes = remaining.unwrap_or(self.bytes);
        remaining.is_some()
    }
}

/// The list of what was skipped.
#[derive(Debug, Default)]
struct Skipped {
    listed: Vec<String>,
    more: u64,
    budget: ListBudget,
}

impl Skipped {
    fn add(&mut self, name: &str, reason: impl Display) {
        let cut = |text: &str| -> String { text.chars().take(MAX_NAME_CHARS).collect() };
        let (name, reason) = (cut(name), cut(&reason.to_string()));
        let entry = format!("{}: {reason}", name.escape_debug());
        if self.listed.len() < MAX_SKIPPED && self.budget.take(&entry) {
            self.listed.push(entry);
        } else {
            self.more += 1;
        }
    }

    fn add_unlisted(&mut self, count: u64) {
        self.more += count;
    }

    fn into_list(mut self) -> Vec<String> {
        if self.more > 0 {
            self.listed.push(format!("{} more", self.more));
        }
        self.listed
    }
}
