//! A file that takes its name once it is whole.

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
    files::{FileError, regular},
    temp_files::{TempFile, TempFileJournal},
};
use crate::api::fs::Mode;

/// A new file's permissions.
const FILE_MODE: u32 = 0o644;
/// The links that may lead to one another; the kernel follows no more.
const MAX_LINKS: usize = 40;

/// A file that is being written. Until [`AtomicFile::publish`] nothing is to be seen of it under its name; dropped, it never was.
#[derive(Debug)]
pub struct AtomicFile {
    file: TempFile,
    target: PathBuf,
    mode: u32,
}

impl AtomicFile {
    /// What a link leads to is written, whether that is there or not, and the link stays.
    ///
    /// # Errors
    /// Where there cannot be a file of that name.
    pub fn new(
        path: &Path,
        mode: Option<Mode>,
        temp_files: &TempFileJournal,
    ) -> Result<Self, FileError> {
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(path)?,
            Err(error) => return Err(error.into()),
        };
        let replaced = match fs::metadata(&target) {
            Ok(metadata) => {
                regular(&metadata)?;
                Some(metadata)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let (Some(directory), Some(_)) = (target.parent(), target.file_name()) else {
            return Err(FileError::IsADirectory);
        };
        let mut file = temp_files.file_in(directory)?;
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

    /// What it is going to be or to replace.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its permissions and its name, which it has in one step.
    ///
    /// # Errors
    /// Where something else has taken the name meanwhile.
    pub fn publish(mut self) -> Result<(), FileError> {
        // Only now: whoever writes takes the set-user bit away, unless root does.
        let permissions = Permissions::from_mode(self.mode);
        self.file.file().set_permissions(permissions)?;
        Ok(self.file.rename(&self.target)?)
    }
}

/// Where a file is going to be that is not there, by the one name that its directory has.
fn new_file(path: &Path) -> Result<PathBuf, FileError> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if names_a_directory(path.as_os_str()) {
            return Err(FileError::InvalidEnding(
                "`/`, `.` or `..`, as there is no such directory",
            ));
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(FileError::IsADirectory);
        };
        let directory = fs::canonicalize(directory)?;
        let place = directory.join(name);
        match fs::read_link(&place) {
            Ok(target) => path = directory.join(target),
            // Not there, or no link.
            Err(_) => return Ok(place),
        }
    }
    Err(FileError::InvalidPath)
}

/// Whether a path is written as only a directory's may be.
fn names_a_directory(path: &OsStr) -> bool {
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_new_file_is_where_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let at = |name: &str| folder.join(name);
        fs::create_dir(at("sub")).unwrap();
        for (target, link) in [
            ("sub/new", "link"),
            ("../link", "sub/link"),
            ("none/new", "lost"),
            ("sub/new/", "slash"),
            ("round", "about"),
            ("about", "round"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        symlink(at("sub/link"), at("absolute")).unwrap();
        for (path, file) in [
            ("new", "new"),
            ("sub/../new", "new"),
            ("link", "sub/new"),
            ("sub/link", "sub/new"),
            ("absolute", "sub/new"),
        ] {
            assert_eq!(new_file(&at(path)).unwrap(), at(file), "{path}");
        }
        for path in ["new/", "new/.", "new//", "new/..", "slash"] {
            let found = new_file(&at(path));
            assert!(matches!(found, Err(FileError::InvalidEnding(_))), "{path}");
        }
        assert!(matches!(new_file(&at("lost")), Err(FileError::NotFound)));
        assert!(matches!(
            new_file(&at("round")),
            Err(FileError::InvalidPath)
        ));
    }
}
