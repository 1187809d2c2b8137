//! Chromium's files in a user-data directory: their names, and reading what they contain from
//! copies that may be damaged or hostile.
//!
//! - [`leveldb`]: keys of LevelDB databases.
//! - [`origin`]: origins in names of directories and in keys.
//! - [`cache_index`]: the storage key of a cache storage.
//! - [`cookie_cipher`], [`cookie_rewrite`]: encrypting cookies for another machine.
//! - [`database`]: cookies and storage buckets in SQLite databases.

pub mod cache_index;
mod coding;
pub mod cookie_cipher;
pub mod cookie_rewrite;
pub mod database;
pub mod leveldb;
pub mod origin;

use std::path::Path;

/// The profile that Chromium starts with, and its directory with the open tabs: their history, with
/// the bodies of requests.
pub const DEFAULT_PROFILE: &str = "Default";
pub const TABS: &str = "Sessions";

/// The files that belong to the running process and not to the profile. The first three prevent two
/// Chromiums on one profile.
pub const PROCESS_FILES: [&str; 4] = [
    "SingletonLock",
    "SingletonCookie",
    "SingletonSocket",
    "DevToolsActivePort",
];

/// The domain of the cookie whose changes make Chromium write its cookies. No host has it.
pub const FLUSH_DOMAIN: &str = "flush.berth.invalid";

/// Returns whether a path in a user-data directory belongs to the running process, like its tabs.
#[must_use]
pub fn is_process_file(path: &Path) -> bool {
    PROCESS_FILES.iter().any(|name| path == Path::new(name))
        || path
            .strip_prefix(DEFAULT_PROFILE)
            .is_ok_and(|path| path.starts_with(TABS))
}

/// Returns the first number of a product's version, such as `Chrome/156.0.8078.79`.
#[must_use]
pub fn major_version_of_product(product: &str) -> Option<u32> {
    let (_, version) = product.split_once('/')?;
    major_version(version)
}

/// Returns the first number of a version such as `156.0.8078.79`.
#[must_use]
pub fn major_version(version: &str) -> Option<u32> {
    let mut numbers = version.split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    numbers
        .all(|number: Result<u32, _>| number.is_ok())
        .then_some(major)
}
