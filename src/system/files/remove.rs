//! Removal of files and directories despite restrictive permissions.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Removes a file, or a directory with its content even if the permissions of its directories
/// forbid it. Succeeds if there is nothing at `path`.
///
/// # Errors
/// If something could not be removed.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => remove_directory(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes like [`remove_all`], but only logs a failure: what remains costs disk space, but does
/// not prevent anything else.
pub fn remove_or_warn(path: &Path) {
    if let Err(error) = remove_all(path) {
        tracing::warn!(path = %path.display(), %error, "temporary file not removed");
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            grant_owner_access(path)?;
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}

fn grant_owner_access(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            grant_owner_access(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::chown, thread};

    use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

    use super::*;

    #[test]
    fn read_only_directories_are_removed_by_their_owner() {
        const UNPRIVILEGED: u32 = 65_534;
        let directory = tempfile::tempdir().unwrap();
        let all = directory.path().join("all");
        let inner = all.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        let read_only = [inner.clone(), all.join("a"), all.clone()];
        if Uid::effective().is_root() {
            for path in read_only.iter().chain([&directory.path().to_owned()]) {
                chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
            }
        }
        for path in &read_only {
            fs::set_permissions(path, Permissions::from_mode(0o500)).unwrap();
        }
        // Permissions do not apply to root, so this thread uses another user for file access.
        let removing = thread::spawn(move || {
            setfsgid(Gid::from_raw(UNPRIVILEGED));
            setfsuid(Uid::from_raw(UNPRIVILEGED));
            (fs::remove_dir_all(&all).is_err(), remove_all(&all))
        });
        let (plain_removal_failed, removed) = removing.join().unwrap();
        assert!(plain_removal_failed);
        removed.unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn removal_accepts_missing_path_and_keeps_target_of_link() {
        let directory = tempfile::tempdir().unwrap();
        remove_all(&directory.path().join("missing")).unwrap();
        let target = directory.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("file"), "").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        remove_all(&link).unwrap();
        assert!(target.join("file").exists() && !link.is_symlink());
    }
}
