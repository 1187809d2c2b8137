//! The session cookies of a restored profile.
//!
//! Chromium stores the cookies that have no expiry, and deletes them when it starts, unless it is
//! to continue its last session. Many sites keep a login in such a cookie. So a restored profile is
//! set to continue its session. No tab of that session is stored (see `stored_tabs`), so that none
//! opens.

use std::{io, path::Path};

use serde_json::{Map, Value, json};

use crate::{
    agent::preferences,
    system::{files::directory::DirectoryHandle, profile::DEFAULT_PROFILE},
};

/// The value of `session.restore_on_startup` that continues the last session.
const CONTINUE_SESSION: u32 = 1;

/// Changes the preferences of a user-data directory so that Chromium keeps its session cookies.
/// Returns false, and changes nothing, if it has no profile or the preferences are not readable.
/// Follows no link. Blocks.
///
/// # Errors
/// If the preferences cannot be written.
pub(super) fn keep(user_data: &Path) -> io::Result<bool> {
    let profile = match DirectoryHandle::open_path(user_data)?.open(DEFAULT_PROFILE) {
        Ok(profile) => profile,
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    let Some(mut preferences) = preferences::read(&profile)? else {
        return Ok(false);
    };
    let session = [("restore_on_startup", json!(CONTINUE_SESSION))];
    set(&mut preferences, "session", session);
    // Otherwise Chromium takes the archive of a running browser for that of a crashed one.
    let state = [
        ("exit_type", json!("Normal")),
        ("exited_cleanly", json!(true)),
    ];
    set(&mut preferences, "profile", state);
    preferences::write(&profile, &preferences)?;
    Ok(true)
}

/// Sets values of the object with that name, which replaces a value of another type.
fn set<const N: usize>(of: &mut Map<String, Value>, name: &str, values: [(&str, Value); N]) {
    let mut object = match of.remove(name) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    object.extend(values.map(|(key, value)| (key.to_owned(), value)));
    of.insert(name.to_owned(), object.into());
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::agent::preferences::PREFERENCES;

    fn kept(preferences: Option<&str>) -> (bool, Option<String>) {
        let directory = tempfile::tempdir().unwrap();
        let profile = directory.path().join(DEFAULT_PROFILE);
        fs::create_dir(&profile).unwrap();
        if let Some(content) = preferences {
            fs::write(profile.join(PREFERENCES), content).unwrap();
        }
        let is_kept = keep(directory.path()).unwrap();
        assert!(fs::read_dir(&profile).unwrap().count() <= 1);
        (is_kept, fs::read_to_string(profile.join(PREFERENCES)).ok())
    }

    #[test]
    fn other_preferences_stay() {
        let before = r#"{"a": [1, 2.5], "profile": {"exit_type": "Crashed", "name": "x"},
            "session": {"restore_on_startup": 4}}"#;
        let (is_kept, after) = kept(Some(before));
        assert!(is_kept);
        let after: Value = serde_json::from_str(&after.unwrap()).unwrap();
        let expected = json!({
            "a": [1, 2.5],
            "profile": {"exit_type": "Normal", "exited_cleanly": true, "name": "x"},
            "session": {"restore_on_startup": 1},
        });
        assert_eq!(after, expected);
    }

    #[test]
    fn missing_preferences_are_created() {
        for before in [None, Some("{}"), Some(r#"{"session": 1, "profile": null}"#)] {
            let (is_kept, after) = kept(before);
            assert!(is_kept && after.unwrap().contains("restore_on_startup"));
        }
    }

    #[test]
    fn unreadable_preferences_stay() {
        for before in ["", "[]", "{"] {
            let expected = (false, Some(before.to_owned()));
            assert_eq!(kept(Some(before)), expected);
        }
    }

    #[test]
    fn links_are_not_followed() {
        let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join(PREFERENCES), "{}").unwrap();
        assert!(!keep(directory.path()).unwrap());
        symlink(outside.path(), directory.path().join(DEFAULT_PROFILE)).unwrap();
        assert!(!keep(directory.path()).unwrap());
        fs::remove_file(directory.path().join(DEFAULT_PROFILE)).unwrap();
        let profile = directory.path().join(DEFAULT_PROFILE);
        fs::create_dir(&profile).unwrap();
        symlink(outside.path().join(PREFERENCES), profile.join(PREFERENCES)).unwrap();
        assert!(!keep(directory.path()).unwrap());
        let after = fs::read_to_string(outside.path().join(PREFERENCES));
        assert_eq!(after.unwrap(), "{}");
    }
}
