//! Chromium's directory for the open tabs. It would contain the bodies of submitted forms, such as
//! one-time codes, and the tabs of a restored profile would open again.

use std::{
    ffi::OsStr,
    io::{self, ErrorKind::NotADirectory},
    path::Path,
};

use crate::system::{
    files::directory::DirectoryHandle,
    profile::{DEFAULT_PROFILE, TABS},
};

/// Replaces the directory by an empty file, so that Chromium stores no tabs. The profile belongs to
/// Chromium's user, so no link in it is followed, and one in its place is removed.
pub(super) fn forbid(user_data: &Path) -> io::Result<()> {
    let directory = DirectoryHandle::open_path(user_data)?;
    let path = [DEFAULT_PROFILE.into()];
    let profile = match directory.create_directories(&path, 0o700) {
        Err(error) if error.kind() == NotADirectory => {
            directory.remove_all(OsStr::new(DEFAULT_PROFILE))?;
            directory.create_directories(&path, 0o700)
        }
        opened => opened,
    }?;
    let tabs = OsStr::new(TABS);
    profile.remove_all(tabs)?;
    profile.create_file(tabs)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn directory_becomes_an_empty_file() {
        let directory = tempfile::tempdir().unwrap();
        let tabs = directory.path().join(DEFAULT_PROFILE).join(TABS);
        fs::create_dir_all(&tabs).unwrap();
        fs::write(tabs.join("Session_1"), "a tab").unwrap();
        for _ in 0..2 {
            forbid(directory.path()).unwrap();
            assert_eq!(fs::read(&tabs).unwrap(), b"");
        }
    }

    #[test]
    fn link_in_place_of_the_directory_is_not_followed() {
        let [directory, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(directory.path().join(DEFAULT_PROFILE)).unwrap();
        fs::write(other.path().join("file"), "stays").unwrap();
        let tabs = directory.path().join(DEFAULT_PROFILE).join(TABS);
        symlink(other.path(), &tabs).unwrap();
        forbid(directory.path()).unwrap();
        assert!(fs::symlink_metadata(&tabs).unwrap().is_file());
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }

    #[test]
    fn link_in_place_of_the_profile_is_removed() {
        let [directory, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let profile = directory.path().join(DEFAULT_PROFILE);
        symlink(other.path(), &profile).unwrap();
        forbid(directory.path()).unwrap();
        assert!(fs::symlink_metadata(&profile).unwrap().is_dir());
        assert_eq!(fs::read(profile.join(TABS)).unwrap(), b"");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }
}
