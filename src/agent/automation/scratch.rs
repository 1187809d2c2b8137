//! Each worker's own directory, the only files its script can reach but through the browser.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The directory of all scratch directories.
#[derive(Debug)]
pub struct ScratchRoot {
    path: PathBuf,
    next: AtomicU64,
}

/// One worker's directory, removed when it is dropped. The worker gives it to the user it becomes.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl ScratchRoot {
    /// Takes the directory over, and removes what a crash has left there.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        // The worker's user passes through, and cannot list the others' names.
        fs::set_permissions(path, fs::Permissions::from_mode(0o711))?;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(ScratchRoot {
            path: path.to_owned(),
            next: AtomicU64::new(1),
        })
    }

    pub fn make(&self) -> io::Result<Scratch> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        fs::create_dir(&path)?;
        let scratch = Scratch(path);
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o700))?;
        Ok(scratch)
    }
}

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a scratch directory stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_go_and_so_does_each_directory_with_its_owner() {
        let state = tempfile::tempdir().unwrap();
        let root = state.path().join("scratch");
        fs::create_dir_all(root.join("7/deep")).unwrap();
        fs::write(root.join("7/deep/file"), "x").unwrap();
        fs::write(root.join("stray"), "x").unwrap();
        let scratches = ScratchRoot::open(&root).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        let scratch = scratches.make().unwrap();
        fs::write(scratch.path().join("made"), "x").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }
}
