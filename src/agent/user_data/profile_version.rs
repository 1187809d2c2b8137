//! The version of the Chromium that used a profile last.

use std::{ffi::OsStr, fs, io, os::unix::fs::MetadataExt, path::Path};

use crate::system::{
    files::directory::{DirectoryHandle, descriptor_path},
    profile::{major_version, major_version_of_product},
};

/// The file with the version in a user-data directory.
const LAST_VERSION: &str = "Last Version";
/// The limit on it in bytes.
const MAX_BYTES: u64 = 64;

/// Reads the version, without following a link. `None` if the directory has no readable one.
/// Blocks.
///
/// # Errors
/// If the directory or the file cannot be read.
pub(super) fn read(user_data: &Path) -> io::Result<Option<String>> {
    let directory = DirectoryHandle::open_path(user_data)?;
    let Some(entry) = directory.entry(OsStr::new(LAST_VERSION))? else {
        return Ok(None);
    };
    let metadata = entry.metadata()?;
    if !metadata.is_file() || metadata.size() > MAX_BYTES {
        return Ok(None);
    }
    let content = fs::read(descriptor_path(&entry))?;
    let version = String::from_utf8_lossy(&content);
    Ok(Some(version.trim_end().to_owned()))
}

/// Returns whether a version is of a later major version than a product, such as
/// `Chrome/156.0.8078.79`.
pub(super) fn is_newer(version: &str, product: &str) -> bool {
    match (major_version(version), major_version_of_product(product)) {
        (Some(version), Some(running)) => version > running,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_major_version_counts() {
        let product = "HeadlessChrome/156.0.8078.79";
        for (version, expected) in [
            ("157.0.0.0", true),
            ("156.9.9999.99", false),
            ("156.0.8078.79", false),
            ("99.0.0.0", false),
            ("unknown", false),
            ("", false),
        ] {
            assert_eq!(is_newer(version, product), expected, "{version}");
        }
        assert!(!is_newer("157.0.0.0", "unknown"));
    }
}
