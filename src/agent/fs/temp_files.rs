//! Temporary files and directories outside the agent's own directories.
//!
//! Each is entered in a journal before it is created, so that the next agent removes those that a
//! killed one left behind. A journal entry is a file named after the random part of the temporary
//! name; its content is the path.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use super::{access::FileAccess, files::FileError};
use crate::{
    agent::session_dir::SessionDir,
    system::files::{
        directory::DirectoryHandle,
        resolve::{LastLink, ResolvedPath, resolve},
    },
};

const PREFIX: &str = ".berth-";
/// The length of the random part of a name, in hexadecimal digits.
const RANDOM_DIGITS: usize = 16;
/// The times that a directory is created, with another name each time, if it is another one when it
/// is opened.
const CREATE_ATTEMPTS: u32 = 3;

/// The journal of temporary files; clones share it.
#[derive(Debug, Clone)]
pub struct TempFileJournal {
    directory: Arc<Path>,
    access: FileAccess,
}

/// The path of an earlier agent's temporary file, and the journal file that records it.
#[derive(Debug)]
struct JournalEntry {
    path: PathBuf,
    record: PathBuf,
}

/// Removes the temporary file and its journal entry when dropped.
#[derive(Debug)]
struct RemoveOnDrop {
    /// The directory of the temporary file.
    directory: Arc<DirectoryHandle>,
    name: OsString,
    record: PathBuf,
}

/// A temporary file. It is removed when dropped, unless it was renamed.
#[derive(Debug)]
pub struct TempFile {
    content: Content,
    entry: RemoveOnDrop,
}

/// The content of a temporary file. A closed one takes no descriptor.
#[derive(Debug)]
enum Content {
    Open(File),
    /// The device and inode of the file, to recognize it.
    Closed(u64, u64),
}

/// A temporary directory. It is removed with its content when dropped.
#[derive(Debug)]
pub struct TempDirectory {
    handle: DirectoryHandle,
    entry: RemoveOnDrop,
}

impl TempFileJournal {
    /// Returns the journal in `directory` of files that are reached through `access`.
    ///
    /// # Errors
    /// If the journal's directory cannot be created.
    pub fn new(directory: &Path, access: FileAccess) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        Ok(TempFileJournal {
            directory: directory.into(),
            access,
        })
    }

    /// Returns the journal of a session. The files that an earlier agent has left are removed in
    /// the background.
    ///
    /// # Errors
    /// If the journal cannot be created or read.
    pub fn recover(session: &SessionDir, access: &FileAccess) -> io::Result<Self> {
        let journal = Self::new(&session.run().join("drafts"), access.clone())?;
        let stale = journal.stale_files()?;
        // A separate thread, which a shutdown does not wait for: the next agent continues its work.
        thread::Builder::new()
            .name("stale-files".into())
            .spawn(move || stale.remove())?;
        Ok(journal)
    }

    pub(super) fn access(&self) -> &FileAccess {
        &self.access
    }

    /// Reads the entries that earlier agents left. Must be called before this agent adds its own.
    ///
    /// # Errors
    /// If the journal's directory cannot be read. A single unreadable entry is skipped.
    pub fn stale_files(&self) -> io::Result<StaleTempFiles> {
        let mut stale = Vec::new();
        for record in fs::read_dir(&self.directory)? {
            let record = record?.path();
            match fs::read(&record) {
                Ok(path) => stale.push(JournalEntry {
                    path: PathBuf::from(OsString::from_vec(path)),
                    record,
                }),
                Err(error) => {
                    let record = record.display();
                    tracing::warn!(%record, %error, "unreadable journal entry skipped");
                }
            }
        }
        Ok(StaleTempFiles {
            entries: stale,
            access: self.access.clone(),
        })
    }

    /// Creates a temporary file in `directory`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create_file_in(&self, directory: Arc<DirectoryHandle>) -> io::Result<TempFile> {
        let entry = self.add_entry(directory)?;
        let file = entry.directory.create_file(&entry.name)?;
        self.access.give(&file, &entry.directory)?;
        let content = Content::Open(file);
        Ok(TempFile { content, entry })
    }

    /// Creates a temporary directory in `directory`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create_directory_in(
        &self,
        directory: Arc<DirectoryHandle>,
    ) -> io::Result<TempDirectory> {
        let mut attempts = CREATE_ATTEMPTS;
        loop {
            let entry = self.add_entry(directory.clone())?;
            attempts -= 1;
            match entry.directory.create_directory(&entry.name, 0o700) {
                Ok(handle) => return Ok(TempDirectory { handle, entry }),
                // At a start of Chromium, its directories are given to its user, with all in them.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add_entry(&self, directory: Arc<DirectoryHandle>) -> io::Result<RemoveOnDrop> {
        let mut random = [0; RANDOM_DIGITS / 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let random = u64::from_ne_bytes(random);
        let name = OsString::from(format!("{PREFIX}{random:016x}"));
        let record = self.directory.join(format!("{random:016x}"));
        // An existing file of that name must not be removed on drop.
        if directory.entry(&name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let path = directory.path()?.join(&name);
        // Written and renamed, so that no entry ever holds only the start of a path.
        let unfinished = record.with_extension("new");
        let written = fs::write(&unfinished, path.as_os_str().as_bytes());
        if let Err(error) = written.and_then(|()| fs::rename(&unfinished, &record)) {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        Ok(RemoveOnDrop {
            directory,
            name,
            record,
        })
    }
}

impl TempFile {
    /// Returns the file, which is opened again if it was closed.
    ///
    /// # Errors
    /// If it cannot be opened, or another file has its name by now.
    pub fn file(&mut self) -> io::Result<&mut File> {
        if let Content::Closed(device, inode) = self.content {
            let file = self.entry.directory.open_file(&self.entry.name)?;
            let metadata = file.metadata()?;
            if (metadata.dev(), metadata.ino()) != (device, inode) {
                return Err(io::Error::other("a temporary file was replaced"));
            }
            self.content = Content::Open(file);
        }
        match &mut self.content {
            Content::Open(file) => Ok(file),
            Content::Closed(..) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Closes the file until it is needed again.
    ///
    /// # Errors
    /// If it cannot be examined.
    pub fn close(&mut self) -> io::Result<()> {
        if let Content::Open(file) = &self.content {
            let metadata = file.metadata()?;
            self.content = Content::Closed(metadata.dev(), metadata.ino());
        }
        Ok(())
    }

    /// Returns the directory that the file is in.
    pub fn directory(&self) -> &Arc<DirectoryHandle> {
        &self.entry.directory
    }

    /// Renames the file in one step, which makes it permanent.
    ///
    /// # Errors
    /// If it cannot have that name.
    pub fn rename(self, to: &DirectoryHandle, name: &OsStr) -> io::Result<()> {
        self.entry.directory.rename(&self.entry.name, to, name)
    }
}

impl TempDirectory {
    pub fn handle(&self) -> &DirectoryHandle {
        &self.handle
    }

    /// Returns the directory that it is in.
    pub fn parent(&self) -> &DirectoryHandle {
        &self.entry.directory
    }
}

impl RemoveOnDrop {
    fn remove(&self) -> io::Result<()> {
        self.directory.remove_all(&self.name)?;
        fs::remove_file(&self.record)
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let path = self.directory.path().unwrap_or_default().join(&self.name);
            tracing::warn!(path = %path.display(), %error, "temporary file not removed");
        }
    }
}

impl JournalEntry {
    fn remove(&self, access: &FileAccess) -> Result<(), FileError> {
        if let ResolvedPath::Existing(found) = resolve(access.root(), &self.path, LastLink::Keep)?
            && let Some((directory, name)) = found.place
        {
            directory.remove_all(&name)?;
        }
        Ok(fs::remove_file(&self.record)?)
    }

    /// Returns whether an agent created the path: it must be named after its journal entry, and
    /// both must have the form of a temporary name.
    fn is_valid(&self) -> bool {
        let random = self.path.file_name().and_then(OsStr::to_str);
        let random = random.and_then(|name| name.strip_prefix(PREFIX));
        self.path.is_absolute()
            && random == self.record.file_name().and_then(OsStr::to_str)
            && random.is_some_and(|random| {
                random.len() == RANDOM_DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    }
}

/// The journal entries of earlier agents, as read; their paths have not been checked.
#[derive(Debug)]
pub struct StaleTempFiles {
    entries: Vec<JournalEntry>,
    access: FileAccess,
}

impl StaleTempFiles {
    /// Removes the stale files with their entries. This may take a while.
    pub fn remove(self) {
        for entry in self.entries {
            let (path, record) = (entry.path.display(), entry.record.display());
            if entry.is_valid() {
                match entry.remove(&self.access) {
                    Ok(()) => tracing::info!(%path, "stale temporary file removed"),
                    Err(error) => tracing::warn!(%path, %error, "temporary file not removed"),
                }
                continue;
            }
            // The path may be anyone's: only the entry is removed.
            tracing::warn!(%record, "invalid journal entry");
            if let Err(error) = fs::remove_file(&entry.record) {
                tracing::warn!(%record, %error, "journal entry not removed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::files::open_directory, *};
    use crate::system::files::root::RootDirectory;

    #[test]
    fn stale_file_is_removed_only_if_entry_matches_name() {
        let directory = tempfile::tempdir().unwrap();
        let path_of = |name: &str| directory.path().join(name);
        let journal = TempFileJournal::new(&path_of("records"), FileAccess::default()).unwrap();
        let handle = Arc::new(open_directory(&RootDirectory::default(), directory.path()).unwrap());
        let mut file = journal.create_file_in(handle.clone()).unwrap();
        let subdirectory = journal.create_directory_in(handle).unwrap();
        fs::write(subdirectory.handle().path().unwrap().join("within"), "").unwrap();
        io::Write::write_all(file.file().unwrap(), b"content").unwrap();
        // As after a kill: nothing is dropped.
        std::mem::forget((file, subdirectory));
        let foreign = path_of("foreign file");
        fs::write(&foreign, "").unwrap();
        fs::write(path_of("records/other"), foreign.as_os_str().as_bytes()).unwrap();
        fs::write(path_of("records/torn"), "").unwrap();
        // Has a temporary name, but not that of its entry.
        let mismatched = path_of(".berth-00000000000000aa");
        fs::create_dir(&mismatched).unwrap();
        fs::write(
            path_of("records/00000000000000bb"),
            mismatched.as_os_str().as_bytes(),
        )
        .unwrap();
        // A truncated path names the parent directory.
        let parent = directory.path().as_os_str().as_bytes();
        fs::write(path_of("records/00000000000000cc"), parent).unwrap();
        // An unreadable entry does not stop the removal of the others.
        fs::create_dir(path_of("records/00000000000000dd")).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
        journal.stale_files().unwrap().remove();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        assert!(foreign.exists() && mismatched.exists());
        assert_eq!(fs::read_dir(path_of("records")).unwrap().count(), 1);
    }

    #[test]
    fn closed_file_is_opened_again_unless_it_was_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let journal =
            TempFileJournal::new(&directory.path().join("records"), FileAccess::default()).unwrap();
        let handle = Arc::new(open_directory(&RootDirectory::default(), directory.path()).unwrap());
        let mut file = journal.create_file_in(handle.clone()).unwrap();
        io::Write::write_all(file.file().unwrap(), b"content").unwrap();
        file.close().unwrap();
        let opened = file.file().unwrap();
        assert_eq!(io::read_to_string(opened).unwrap(), "content");
        file.close().unwrap();
        let path = directory.path().join(&file.entry.name);
        fs::write(path.with_extension("other"), "").unwrap();
        fs::rename(path.with_extension("other"), &path).unwrap();
        let error = file.file().unwrap_err();
        assert_eq!(error.to_string(), "a temporary file was replaced");
    }

    #[test]
    fn dropped_file_is_removed_with_its_entry() {
        let directory = tempfile::tempdir().unwrap();
        let path_of = |name: &str| directory.path().join(name);
        let journal = TempFileJournal::new(&path_of("records"), FileAccess::default()).unwrap();
        let handle = Arc::new(open_directory(&RootDirectory::default(), directory.path()).unwrap());
        drop(journal.create_file_in(handle.clone()).unwrap());
        drop(journal.create_directory_in(handle.clone()).unwrap());
        let renamed = journal.create_file_in(handle.clone()).unwrap();
        renamed.rename(&handle, "renamed".as_ref()).unwrap();
        fs::create_dir(path_of("removed")).unwrap();
        let removed = Arc::new(handle.open("removed").unwrap());
        fs::remove_dir(path_of("removed")).unwrap();
        assert!(journal.create_file_in(removed).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        assert_eq!(fs::read_dir(path_of("records")).unwrap().count(), 0);
    }
}
