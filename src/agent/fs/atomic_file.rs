//! A file that appears under its name only when it is complete.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

use nix::unistd::{Gid, Uid, fchown};

use super::{
    access::FileAccess,
    files::{FileError, require_regular},
    temp_files::{TempFile, TempFileJournal},
};
use crate::{
    api::fs::Mode,
    system::files::{
        directory::DirectoryHandle,
        resolve::{ExistingEntry, LastLink, MissingEntry, ResolvedPath, is_foreign, resolve},
    },
};

/// The permissions of a new file.
const FILE_MODE: u32 = 0o644;

/// A file that is being written under a temporary name. [`AtomicFile::publish`] gives it its final
/// name; dropping it removes it.
#[derive(Debug)]
pub struct AtomicFile {
    /// In the destination's directory, or the deepest one of its parents that exists.
    file: TempFile,
    /// The missing parents of the destination, the outermost first.
    missing: Vec<OsString>,
    name: OsString,
    mode: u32,
}

/// The resolved destination of a file.
struct FileDestination {
    directory: Arc<DirectoryHandle>,
    missing: Vec<OsString>,
    name: OsString,
    replaced: Option<Metadata>,
}

/// The identity of a destination: two paths that lead to one file have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DestinationKey {
    /// The device and inode of the deepest directory that exists.
    directory: (u64, u64),
    /// The names below it, the last of which is the file's.
    names: Vec<OsString>,
}

impl DestinationKey {
    /// Returns the identity of the deepest directory that exists.
    pub fn directory(&self) -> (u64, u64) {
        self.directory
    }

    /// Returns whether this destination needs a new directory where the other one has its file.
    pub fn is_below(&self, other: &DestinationKey) -> bool {
        self.directory == other.directory
            && self.names.len() > other.names.len()
            && self.names.starts_with(&other.names)
    }
}

impl AtomicFile {
    /// Creates the temporary file beside its target. Symbolic links are followed, including
    /// dangling ones: the file they lead to is written and the links stay.
    ///
    /// # Errors
    /// If there cannot be a file of that name, or its directory does not exist.
    pub fn new(
        path: &Path,
        mode: Option<Mode>,
        temp_files: &TempFileJournal,
    ) -> Result<Self, FileError> {
        let destination = FileDestination::resolve(temp_files.access(), path)?;
        if !destination.missing.is_empty() {
            return Err(destination.missing_directory());
        }
        Self::create(destination, mode, temp_files)
    }

    /// Creates the temporary file like [`AtomicFile::new`], but accepts that parents of the target
    /// are missing. [`AtomicFile::publish_in`] publishes the file then. `share` returns the handle
    /// that is to be retained for a directory.
    ///
    /// # Errors
    /// If there cannot be a file of that name, or `share` fails.
    pub fn with_missing_parents<E: From<FileError>>(
        path: &Path,
        temp_files: &TempFileJournal,
        share: impl FnOnce(Arc<DirectoryHandle>) -> Result<Arc<DirectoryHandle>, E>,
    ) -> Result<Self, E> {
        let mut destination = FileDestination::resolve(temp_files.access(), path)?;
        destination.directory = share(destination.directory)?;
        Ok(Self::create(destination, None, temp_files)?)
    }

    fn create(
        destination: FileDestination,
        mode: Option<Mode>,
        temp_files: &TempFileJournal,
    ) -> Result<Self, FileError> {
        let mut file = temp_files.create_file_in(destination.directory)?;
        if let Some(replaced) = &destination.replaced {
            let owner = (Uid::from_raw(replaced.uid()), Gid::from_raw(replaced.gid()));
            if owner != (Uid::effective(), Gid::effective()) {
                fchown(file.file()?, Some(owner.0), Some(owner.1)).map_err(io::Error::from)?;
            }
        }
        let replaced_mode = destination.replaced.map(|found| found.mode() & 0o7777);
        let bits = mode.map(Mode::bits).or(replaced_mode);
        Ok(AtomicFile {
            file,
            missing: destination.missing,
            name: destination.name,
            mode: bits.unwrap_or(FILE_MODE),
        })
    }

    /// Returns the temporary file, which is opened again if it was closed.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.file.file()
    }

    /// Closes the temporary file until it is needed again.
    ///
    /// # Errors
    /// If it cannot be examined.
    pub fn close(&mut self) -> io::Result<()> {
        self.file.close()
    }

    /// Returns the directory that exists, and the names of those below it that are missing.
    pub fn parents(&self) -> (&Arc<DirectoryHandle>, &[OsString]) {
        (self.file.directory(), &self.missing)
    }

    /// # Errors
    /// If the directory cannot be examined.
    pub fn key(&self) -> Result<DestinationKey, FileError> {
        let directory = self.file.directory().metadata()?;
        let names = self.missing.iter().chain([&self.name]).cloned().collect();
        Ok(DestinationKey {
            directory: (directory.dev(), directory.ino()),
            names,
        })
    }

    /// Sets the file's permissions and renames it to its target in one step.
    ///
    /// # Errors
    /// If the target became something that a file cannot replace.
    pub fn publish(self) -> Result<(), FileError> {
        let directory = self.file.directory().clone();
        self.publish_in(&directory)
    }

    /// Publishes like [`AtomicFile::publish`], in a directory that replaces the target's.
    ///
    /// # Errors
    /// As for [`AtomicFile::publish`].
    pub fn publish_in(mut self, directory: &DirectoryHandle) -> Result<(), FileError> {
        // Permissions come last: a write by anyone but root clears the set-user-ID bit.
        let permissions = Permissions::from_mode(self.mode);
        self.file.file()?.set_permissions(permissions)?;
        Ok(self.file.rename(directory, &self.name)?)
    }
}

impl FileDestination {
    fn resolve(access: &FileAccess, path: &Path) -> Result<Self, FileError> {
        let destination = match resolve(access.root(), path, LastLink::Follow)? {
            ResolvedPath::Existing(existing) => Self::replacing(existing),
            ResolvedPath::Missing(missing) => Self::creating(missing),
        }?;
        access.note_change(&destination.directory);
        Ok(destination)
    }

    fn replacing(existing: ExistingEntry) -> Result<Self, FileError> {
        let metadata = existing.entry.metadata()?;
        require_regular(&metadata)?;
        // A file without a name, as below `/proc/self/fd`, cannot be replaced.
        let (directory, name) = existing.place.ok_or(FileError::VirtualFileSystem)?;
        // The kernel's rule `fs.protected_regular`: the owner could read what is written.
        if is_foreign(metadata.uid(), &directory.metadata()?) {
            return Err(FileError::ForeignFile);
        }
        Ok(FileDestination {
            directory: Arc::new(directory),
            missing: Vec::new(),
            name,
            replaced: Some(metadata),
        })
    }

    fn creating(missing: MissingEntry) -> Result<Self, FileError> {
        if missing.must_be_directory {
            return Err(FileError::InvalidEnding(
                "`/`, `.` or `..`, as there is no such directory",
            ));
        }
        let destination = FileDestination {
            directory: Arc::new(missing.directory),
            missing: missing.parents,
            name: missing.name,
            replaced: None,
        };
        // The target of a dangling link is created, but no directories for it.
        match missing.is_link_target && !destination.missing.is_empty() {
            true => Err(destination.missing_directory()),
            false => Ok(destination),
        }
    }

    /// Returns the error that names the outermost missing directory.
    fn missing_directory(&self) -> FileError {
        let first = self.missing.first().map_or(OsStr::new(""), |name| name);
        match self.directory.path() {
            Ok(directory) => FileError::MissingDirectory(directory.join(first)),
            Err(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn new_file_is_created_where_links_lead() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let path_of = |name: &str| directory.join(name);
        let journal = TempFileJournal::new(&path_of("journal"), FileAccess::default()).unwrap();
        let create = |path: &str| AtomicFile::new(&path_of(path), None, &journal);
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
            create(path).unwrap().publish().unwrap();
            fs::remove_file(path_of(file)).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        for path in ["new/", "new/.", "new//", "slash"] {
            let created = create(path);
            assert!(
                matches!(created, Err(FileError::InvalidEnding(_))),
                "{path}"
            );
        }
        for path in ["lost", "none/new", "none/more/new"] {
            let Err(FileError::MissingDirectory(missing)) = create(path) else {
                panic!("{path} was created");
            };
            assert_eq!(missing, path_of("none"), "{path}");
        }
        assert!(matches!(create("new/.."), Err(FileError::NotFound)));
        assert!(matches!(create("round"), Err(FileError::InvalidPath)));
    }
}
