//! Removing what may stand against it.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// Removes a file, or a directory and all that is in it, also where the permissions of its directories are against it. What is not there is removed.
///
/// # Errors
/// Where something of it stays.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_directory(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// As [`remove_all`], but what cannot be removed is told in the log: it takes room, and is no reason to do without the rest.
pub fn remove_or_warn(path: &Path) {
    if let Err(error) = remove_all(path) {
        tracing::warn!(path = %path.display(), %error, "something temporary is left");
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path)?;
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
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
    fn permissions_are_not_in_the_way_of_their_owner() {
        const NOBODY: u32 = 65_534;
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("all");
        let inner = all.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        let closed = [inner.clone(), all.join("a"), all.clone()];
        if Uid::effective().is_root() {
            for path in closed.iter().chain([&folder.path().to_owned()]) {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        for path in &closed {
            fs::set_permissions(path, Permissions::from_mode(0o500)).unwrap();
        }
        // Nothing is in root's way, so that this thread is somebody else for the file system.
        let removing = thread::spawn(move || {
            setfsgid(Gid::from_raw(NOBODY));
            setfsuid(Uid::from_raw(NOBODY));
            (fs::remove_dir_all(&all).is_err(), remove_all(&all))
        });
        let (was_in_the_way, removed) = removing.join().unwrap();
        assert!(was_in_the_way);
        removed.unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_there_is_removed_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        remove_all(&folder.path().join("missing")).unwrap();
        let kept = folder.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        remove_all(&link).unwrap();
        assert!(kept.join("file").exists() && !link.is_symlink());
    }
}
