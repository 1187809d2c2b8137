//! A blob store in a local directory.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

use object_store::local::LocalFileSystem;

use crate::state_dir::PRIVATE_FILE;

/// Opens the store, creating the directory if it is missing. Removes incomplete files of blobs
/// whose key is `is_own`.
pub(super) fn open(directory: &Path, is_own: fn(&str) -> bool) -> io::Result<LocalFileSystem> {
    let mut private = DirBuilder::new();
    private.mode(0o700).recursive(true).create(directory)?;
    remove_incomplete(directory, "", is_own)?;
    let store = LocalFileSystem::new_with_prefix(directory).map_err(io::Error::other)?;
    // Synced, because the caller removes the source of a stored blob. The blob must survive a power
    // failure after that.
    Ok(store.with_fsync(true))
}

/// Makes the file of a blob readable by its owner only. The directory already is.
pub(super) async fn make_private(directory: &Path, key: &str) -> io::Result<()> {
    let mode = fs::Permissions::from_mode(PRIVATE_FILE);
    tokio::fs::set_permissions(directory.join(key), mode).await
}

/// Removes the temporary files of interrupted writes below `prefix`. `LocalFileSystem` writes a
/// blob to its path with `#` and a number appended, and renames it when it is complete.
fn remove_incomplete(directory: &Path, prefix: &str, is_own: fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        // Links are neither followed nor removed.
        let kind = entry.file_type()?;
        if kind.is_dir() {
            remove_incomplete(&path, &format!("{prefix}{name}/"), is_own)?;
            continue;
        }
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_incomplete = name
            .rsplit_once('#')
            .is_some_and(|(name, number)| is_number(number) && is_own(&format!("{prefix}{name}")));
        if kind.is_file() && is_incomplete {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own(key: &str) -> bool {
        key.starts_with("a/")
    }

    #[test]
    fn open_removes_incomplete_files() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("blobs");
        open(&directory, is_own).unwrap();
        for name in ["a", "other"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        // A blob, and files of another program.
        let others = ["a/one", "other/report#2026", "a/two#x"].map(|name| directory.join(name));
        for path in &others {
            fs::write(path, "").unwrap();
        }
        fs::write(directory.join("a/two#1"), "half").unwrap();
        let link = directory.join("a/link#1");
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        open(&directory, is_own).unwrap();
        assert!(!directory.join("a/two#1").exists());
        for path in others.iter().chain([&link]) {
            assert!(path.exists(), "{}", path.display());
        }
    }
}
