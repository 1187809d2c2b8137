//! The content of a profile that is not imported.

use std::{fs, path::Path};

use super::{UndecryptedCookies, source::Source};
use crate::system::{
    files::archive::SkippedEntries,
    profile::database::{DatabaseError, count_logins},
};

/// The files that are the sign of a content, and its description.
const CONTENTS: [(&str, &str); 6] = [
    ("Web Data", "autofill and payment data"),
    (
        "Sync Data",
        "the account of the browser and its synchronization",
    ),
    ("Sessions", "open tabs and windows"),
    ("Session Storage", "session storage of open tabs"),
    (
        "Device Bound Sessions",
        "sessions that are bound to this device",
    ),
    ("Local Extension Settings", "data of extensions"),
];

/// A list of content with reasons.
#[derive(Debug, Default)]
pub(super) struct NotImported(Vec<String>);

impl NotImported {
    /// Lists the content of a profile that is never imported. Blocks. `logins` is the path of a
    /// temporary copy of the saved passwords, which are encrypted.
    pub(super) fn of(source: &Source, logins: &Path) -> Self {
        let profile = &source.profile;
        let mut list = vec!["settings and permissions of sites".to_owned()];
        list.extend(describe_logins(&profile.join("Login Data"), logins));
        list.extend(describe_extensions(&profile.join("Extensions")));
        let present = CONTENTS
            .iter()
            .filter(|(path, _)| profile.join(path).exists());
        list.extend(present.map(|(_, description)| (*description).to_owned()));
        NotImported(list)
    }

    pub(super) fn add_skipped(&mut self, skipped: &SkippedEntries) {
        self.0.extend(skipped.describe());
    }

    pub(super) fn add_cookies(&mut self, undecrypted: &UndecryptedCookies) {
        self.0.extend(undecrypted.iter().map(|(domain, count)| {
            let domain = domain.escape_debug();
            format!("cookies of {domain} that could not be decrypted: {count}")
        }));
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.0
    }
}

fn describe_logins(database: &Path, copy: &Path) -> Option<String> {
    if !database.is_file() {
        return None;
    }
    let copied = fs::copy(database, copy).map_err(DatabaseError::from);
    let counted = copied.and_then(|_| count_logins(copy));
    // Fails only if it was not copied.
    let _ = fs::remove_file(copy);
    match counted {
        Ok(0) => None,
        Ok(count) => Some(format!("saved passwords: {count}")),
        Err(_) => Some("saved passwords, of an unknown number".to_owned()),
    }
}

fn describe_extensions(directory: &Path) -> Option<String> {
    let entries = fs::read_dir(directory).ok()?;
    let count = entries
        .flatten()
        // A directory for temporary files has another name.
        .filter(|entry| entry.file_name().len() == EXTENSION_ID_BYTES)
        .count();
    (count > 0).then(|| format!("extensions: {count}"))
}

/// The length of the id of an extension.
const EXTENSION_ID_BYTES: usize = 32;
