//! The profile that is imported: where it is, whether a browser uses it, and the copy of it.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use nix::unistd::gethostname;

use super::{ImportError, NotImported};
use crate::system::files::archive::{self, ArchiveSource};

/// The name of the profile in the copy.
pub(super) const COPIED_PROFILE: &str = "Default";

/// The files and directories of a profile that are imported.
const IMPORTED: [&str; 14] = [
    "Bookmarks",
    "Cookies",
    "Cookies-journal",
    "Cookies-wal",
    "Favicons",
    "Favicons-journal",
    "File System",
    "History",
    "History-journal",
    "IndexedDB",
    "Local Storage",
    "Network",
    "Service Worker",
    "WebStorage",
];
/// The files of `Network` that are imported.
const IMPORTED_OF_NETWORK: [&str; 3] = ["Cookies", "Cookies-journal", "Cookies-wal"];

/// Why there is no profile to be imported.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{0}: neither a user-data directory nor a profile in one")]
    NoProfile(PathBuf),
    #[error("{directory}: has no profile `{name}`; --profile-directory names another one")]
    NoSuchProfile { directory: PathBuf, name: String },
    #[error("{0}: a browser is using the profile ({1}); close it, or use --live")]
    Running(PathBuf, String),
}

/// A profile of this machine.
#[derive(Debug)]
pub(super) struct Source {
    user_data: PathBuf,
    pub(super) profile: PathBuf,
}

impl Source {
    /// Finds the profile in a user-data directory, or the directory of a profile itself.
    pub(super) fn find(directory: &Path, name: &str) -> Result<Self, SourceError> {
        let has = |directory: &Path, file: &str| directory.join(file).is_file();
        if has(directory, "Local State") {
            let profile = directory.join(name);
            if !has(&profile, "Preferences") {
                return Err(SourceError::NoSuchProfile {
                    directory: directory.to_owned(),
                    name: name.to_owned(),
                });
            }
            return Ok(Source {
                user_data: directory.to_owned(),
                profile,
            });
        }
        if has(directory, "Preferences") {
            return Ok(Source {
                user_data: directory.join(".."),
                profile: directory.to_owned(),
            });
        }
        Err(SourceError::NoProfile(directory.to_owned()))
    }

    /// Rejects a profile that a browser is using. One of another machine cannot be checked, and
    /// counts as running, as it does for the browser.
    pub(super) fn check_not_running(&self) -> Result<(), SourceError> {
        let Ok(lock) = fs::read_link(self.user_data.join("SingletonLock")) else {
            return Ok(());
        };
        let lock = lock.to_string_lossy().into_owned();
        let is_stale = lock.rsplit_once('-').is_some_and(|(host, pid)| {
            let is_here = gethostname().is_ok_and(|here| here == OsStr::new(host));
            let is_pid = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            is_here && is_pid && !Path::new("/proc").join(pid).exists()
        });
        match is_stale {
            true => Ok(()),
            false => Err(SourceError::Running(self.user_data.clone(), lock)),
        }
    }

    /// Copies what can be imported to a new directory in the form of a user-data directory.
    pub(super) fn copy(
        &self,
        to: &Path,
        not_imported: &mut NotImported,
    ) -> Result<(), ImportError> {
        let profile = to.join(COPIED_PROFILE);
        let source = ArchiveSource::open(&self.profile)?.excluding(|path| !is_imported(path));
        let copied = (|| {
            create_directory(to)?;
            create_directory(&profile)?;
            let skipped = archive::copy(&source, &profile)?;
            use_one_cookie_database(&profile)?;
            // Chromium's defaults: the preferences of another installation name its extensions,
            // accounts and paths.
            fs::write(profile.join("Preferences"), "{}")?;
            let version = self.user_data.join("Last Version");
            if version.is_file() {
                fs::copy(version, to.join("Last Version"))?;
            }
            Ok(skipped)
        })();
        let skipped = copied.map_err(ImportError::Copy)?;
        not_imported.add_skipped(&skipped);
        Ok(())
    }
}

fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns whether a path in a profile is imported.
fn is_imported(path: &Path) -> bool {
    let mut names = path.iter().map(OsStr::to_str);
    let (first, second) = (names.next().flatten(), names.next());
    match (first, second) {
        (Some("Network"), Some(file)) => {
            file.is_some_and(|file| IMPORTED_OF_NETWORK.contains(&file))
        }
        (Some(first), _) => IMPORTED.contains(&first),
        (None, _) => false,
    }
}

/// Moves the cookies to the place where Chromium on Linux reads them.
fn use_one_cookie_database(profile: &Path) -> io::Result<()> {
    let network = profile.join("Network");
    if !network.is_dir() {
        return Ok(());
    }
    if !profile.join("Cookies").exists() {
        for name in IMPORTED_OF_NETWORK {
            match fs::rename(network.join(name), profile.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    fs::remove_dir_all(network)
}
