//! A file that appears under its name only when it is complete.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, fchown};

use super::{
    files::{FileError, require_regular},
    temp_files::{TempFile, TempFileJournal},
};
use crate::api::fs::Mode;

/// The permissions of a new file.
const FILE_MODE: u32 = 0o644;
/// The longest chain of symbolic links that is followed; the kernel follows no more either.
const MAX_LINKS: usize = 40;

/// A file that is being written under a temporary name. [`AtomicFile::publish`] gives it its final
/// name; dropping it removes it.
#[derive(Debug)]
pub struct AtomicFile {
    file: TempFile,
    target: PathBuf,
    mode: u32,
}

impl AtomicFile {
    /// Creates the temporary file beside its target. Symbolic links are followed, including
    /// dangling ones: the file they lead to is written and the links stay.
    ///
    /// # Errors
    /// If there cannot be a file of that name.
    pub fn new(
        path: &Path,
        mode: Option<Mode>,
        temp_files: &TempFileJournal,
    ) -> Result<Self, FileError> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => resolve_new_file(path)?,
            Err(error) => return Err(error.into()),
        };
        let replaced = match fs::metadata(&target) {
            Ok(metadata) => {
                require_regular(&metadata)?;
                Some(metadata)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let (Some(directory), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(FileError::IsADirectory);
        };
        let mut file = temp_files.create_file_in(directory)?;
        if let Some(replaced) = &replaced {
            let owner = (Uid::from_raw(replaced.uid()), Gid::from_raw(replaced.gid()));
            if owner != (Uid::effective(), Gid::effective()) {
                fchown(file.file(), Some(owner.0), Some(owner.1)).map_err(io::Error::from)?;
            }
        }
        let bits = mode.map(Mode::bits);
        let bits = bits.or(replaced.map(|metadata| metadata.mode() & 0o7777));
        Ok(AtomicFile {
            file,
            target,
            mode: bits.unwrap_or(FILE_MODE),
        })
    }

    pub fn file(&mut self) -> &mut File {
        self.file.file()
    }

    /// Returns the resolved path that the file is published under.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Sets the file's permissions and renames it to its target in one step.
    ///
    /// # Errors
    /// If the target became something that a file cannot replace.
    pub fn publish(mut self) -> Result<(), FileError> {
        // Permissions come last: a write by anyone but root clears the set-user-ID bit.
        let permissions = Permissions::from_mode(self.mode);
        self.file.file().set_permissions(permissions)?;
        Ok(self.file.rename(&self.target)?)
    }
}

/// Resolves the path of a file that does not exist yet to its canonical directory and name.
fn resolve_new_file(path: &Path) -> Result<PathBuf, FileError> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if ends_as_directory(path.as_os_str()) {
            return Err(FileError::InvalidEnding(
                "`/`, `.` or `..`, as there is no such directory",
            ));
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FileError::IsADirectory);
        };
        let directory = fs::canonicalize(directory)?;
        let resolved = directory.join(name);
        match fs::read_link(&resolved) {
            Ok(target) => path = directory.join(target),
            // It does not exist, or is not a link.
            Err(_) => return Ok(resolved),
        }
    }
    Err(FileError::InvalidPath)
}

/// Returns whether a path has an ending that only a directory's path may have.
fn ends_as_directory(path: &OsStr) -> bool {
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn new_file_is_created_where_links_lead() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let path_of = |name: &str| directory.join(name);
        fs::create_dir(path_of("sub")).unwrap();
        for (target, link) in [
            ("sub/new", "link"),
            ("../link", "sub/link"),
            ("none/new", "lost"),
            ("sub/new/", "slash"),
            ("round", "about"),
            ("about", "round"),
        ] {
            symlink(target, path_of(link)).unwrap();
        }
        symlink(path_of("sub/link"), path_of("absolute")).unwrap();
        for (path, file) in [
            ("new", "new"),
            ("sub/../new", "new"),
            ("link", "sub/new"),
            ("sub/link", "sub/new"),
            ("absolute", "sub/new"),
        ] {
            let resolved = resolve_new_file(&path_of(path)).unwrap();
            assert_eq!(resolved, path_of(file), "{path}");
        }
        for path in ["new/", "new/.", "new//", "new/..", "slash"] {
            let resolved = resolve_new_file(&path_of(path));
            assert!(
                matches!(resolved, Err(FileError::InvalidEnding(_))),
                "{path}"
            );
        }
        let dangling = resolve_new_file(&path_of("lost"));
        assert!(matches!(dangling, Err(FileError::NotFound)));
        let cycle = resolve_new_file(&path_of("round"));
        assert!(matches!(cycle, Err(FileError::InvalidPath)));
    }
}
