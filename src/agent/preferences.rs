//! The preferences of Chromium's profile, which are changed while it does not run. The profile
//! belongs to Chromium's user, so no link in it is followed.

use std::{ffi::OsStr, fs, io, io::Write, os::unix::fs::MetadataExt, path::Path};

use serde_json::{Map, Value};

use crate::system::{
    files::directory::{DirectoryHandle, descriptor_path},
    profile::DEFAULT_PROFILE,
};

pub(super) const PREFERENCES: &str = "Preferences";
/// The name of the new preferences until they are complete.
const NEW_PREFERENCES: &str = "Preferences.berth";
/// The limit on preferences in bytes. Chromium's are of a few hundred KiB.
const MAX_PREFERENCES_BYTES: u64 = 16 << 20;
/// Whether Chromium offers to save passwords.
const SAVES_PASSWORDS: &str = "credentials_enable_service";

/// Reads the preferences, which are empty if there is no file. `None` if they are not readable.
pub(super) fn read(profile: &DirectoryHandle) -> io::Result<Option<Map<String, Value>>> {
    let Some(entry) = profile.entry(OsStr::new(PREFERENCES))? else {
        return Ok(Some(Map::new()));
    };
    let metadata = entry.metadata()?;
    if !metadata.is_file() || metadata.size() > MAX_PREFERENCES_BYTES {
        return Ok(None);
    }
    let content = fs::read(descriptor_path(&entry))?;
    Ok(serde_json::from_slice(&content).ok())
}

/// Replaces the preferences.
pub(super) fn write(profile: &DirectoryHandle, preferences: &Map<String, Value>) -> io::Result<()> {
    let new = OsStr::new(NEW_PREFERENCES);
    profile.remove_all(new)?;
    let mut file = profile.create_file(new)?;
    file.write_all(&serde_json::to_vec(preferences)?)?;
    profile.rename(new, profile, OsStr::new(PREFERENCES))
}

/// Makes Chromium not offer to save passwords: its dialog shows the user name of a login, and the
/// password at a click. Those that are saved are still filled. Preferences that are not readable
/// stay as they are. Blocks.
pub(super) fn forbid_password_dialog(user_data: &Path) -> io::Result<()> {
    let directory = DirectoryHandle::open_path(user_data)?;
    let profile = directory.create_directories(&[DEFAULT_PROFILE.into()], 0o700)?;
    let Some(mut preferences) = read(&profile)? else {
        return Ok(());
    };
    let before = preferences.insert(SAVES_PASSWORDS.to_owned(), false.into());
    if before == Some(false.into()) {
        return Ok(());
    }
    write(&profile, &preferences)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    fn preferences(user_data: &Path) -> Value {
        let path = user_data.join(DEFAULT_PROFILE).join(PREFERENCES);
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn password_dialog_is_forbidden_in_new_and_old_profiles() {
        let directory = tempfile::tempdir().unwrap();
        forbid_password_dialog(directory.path()).unwrap();
        let expected = json!({"credentials_enable_service": false});
        assert_eq!(preferences(directory.path()), expected);
        let path = directory.path().join(DEFAULT_PROFILE).join(PREFERENCES);
        let inode = fs::metadata(&path).unwrap().ino();
        forbid_password_dialog(directory.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "written again");
        fs::write(&path, r#"{"a": [1], "credentials_enable_service": true}"#).unwrap();
        forbid_password_dialog(directory.path()).unwrap();
        let expected = json!({"a": [1], "credentials_enable_service": false});
        assert_eq!(preferences(directory.path()), expected);
    }

    #[test]
    fn preferences_that_are_not_readable_stay() {
        let directory = tempfile::tempdir().unwrap();
        let profile = directory.path().join(DEFAULT_PROFILE);
        fs::create_dir(&profile).unwrap();
        fs::write(profile.join(PREFERENCES), "{torn").unwrap();
        forbid_password_dialog(directory.path()).unwrap();
        let content = fs::read_to_string(profile.join(PREFERENCES)).unwrap();
        assert_eq!(content, "{torn");
    }

    #[test]
    fn link_in_place_of_the_profile_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        symlink(other.path(), directory.path().join(DEFAULT_PROFILE)).unwrap();
        assert!(forbid_password_dialog(directory.path()).is_err());
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }
}
