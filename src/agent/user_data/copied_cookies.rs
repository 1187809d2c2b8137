//! The cookies in a copy of a running Chromium's profile.
//!
//! Chromium replaces a cookie by a deletion and an insertion. A write of its database may come
//! between the two, so that a copy of that time has neither the old nor the new cookie.

use std::{collections::BTreeSet, fs, io, path::Path};

use crate::system::profile::database::{COMPANION_SUFFIXES, CookieId, companion, cookie_ids};

const DIRECTORY: &str = "Default";
const DATABASE: &str = "Cookies";

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
    // The copied profile has the links of the original, which clients can change.
    let source = profile.join(DIRECTORY);
    if !fs::symlink_metadata(&source)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let database = source.join(DATABASE);
    let directory = tempfile::tempdir_in(work)?;
    let copy = directory.path().join(DATABASE);
    copy_file(&database, &copy)?;
    for suffix in COMPANION_SUFFIXES {
        match copy_file(&companion(&database, suffix), &companion(&copy, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let found = cookie_ids(&copy).map_err(io::Error::other)?;
    Ok(expected.difference(&found).cloned().collect())
}

/// Copies a regular file. Fails for a link.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(from)?.is_file() {
        true => fs::copy(from, to).map(drop),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_in_a_copied_profile_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [profile, work] = ["profile", "work"].map(|name| directory.path().join(name));
        fs::create_dir_all(profile.join("Default")).unwrap();
        fs::create_dir(&work).unwrap();
        // A copy of what it leads to would never end.
        symlink("/dev/zero", profile.join("Default/Cookies")).unwrap();
        let expected = [CookieId::new("a.example", "/", "login")].into();
        let error = find_missing(&profile, &expected, &work).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);

        fs::rename(profile.join("Default"), profile.join("Other")).unwrap();
        symlink("Other", profile.join("Default")).unwrap();
        let error = find_missing(&profile, &expected, &work).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
