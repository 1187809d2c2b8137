//! The cookies in a copy of a running Chromium's profile.
//!
//! Chromium replaces a cookie by a deletion and an insertion. A write of its database may come
//! between the two, so that a copy of that time has neither the old nor the new cookie.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::system::profile::database::{COMPANION_SUFFIXES, CookieId, cookie_ids};

const DATABASE: &str = "Default/Cookies";

/// Returns the cookies among `expected` that a copied profile lacks. `work` is a directory for a
/// copy of the database, which SQLite may change.
pub(super) fn find_missing(
    profile: &Path,
    expected: &BTreeSet<CookieId>,
    work: &Path,
) -> io::Result<Vec<CookieId>> {
    if expected.is_empty() {
        return Ok(Vec::new());
    }
    let database = profile.join(DATABASE);
    let directory = tempfile::tempdir_in(work)?;
    let copy = directory.path().join("Cookies");
    fs::copy(&database, &copy)?;
    for suffix in COMPANION_SUFFIXES {
        match fs::copy(with_suffix(&database, suffix), with_suffix(&copy, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let found = cookie_ids(&copy).map_err(io::Error::other)?;
    Ok(expected.difference(&found).cloned().collect())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
