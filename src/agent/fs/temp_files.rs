//! Temporary files and directories among those of others.
//!
//! Each is recorded before it is made, so that the next agent removes what one that was killed has left.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::system::files::remove::remove_all;

const PREFIX: &str = ".berth-";
/// Of the random part, in hexadecimal digits.
const RANDOM: usize = 16;

/// Where they are recorded; clones share it.
#[derive(Debug, Clone)]
pub struct TempFileJournal {
    records: Arc<Path>,
}

/// A path, and the file that tells of it.
#[derive(Debug)]
struct Record {
    path: PathBuf,
    record: PathBuf,
}

/// What this agent has recorded. It is removed when this is dropped, and its record with it.
#[derive(Debug)]
struct Recorded(Record);

/// A file that is removed when this is dropped, unless it has got a name to keep.
#[derive(Debug)]
pub struct TempFile {
    file: File,
    recorded: Recorded,
}

/// A directory that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct TempDirectory {
    recorded: Recorded,
}

impl TempFileJournal {
    /// # Errors
    /// Where the folder of records cannot be made.
    pub fn new(records: &Path) -> io::Result<Self> {
        fs::create_dir_all(records)?;
        Ok(TempFileJournal {
            records: records.into(),
        })
    }

    /// What earlier agents have recorded and not removed. Nothing of this agent's may be there yet.
    ///
    /// # Errors
    /// Where the folder of records cannot be read. A single record that cannot be is passed over.
    pub fn stale_files(&self) -> io::Result<StaleTempFiles> {
        let mut found = Vec::new();
        for record in fs::read_dir(&self.records)? {
            let record = record?.path();
            match fs::read(&record) {
                Ok(path) => found.push(Record {
                    path: PathBuf::from(OsString::from_vec(path)),
                    record,
                }),
                Err(error) => {
                    tracing::warn!(record = %record.display(), %error, "a record cannot be read");
                }
            }
        }
        Ok(StaleTempFiles(found))
    }

    /// A new file in a directory.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn file_in(&self, directory: &Path) -> io::Result<TempFile> {
        let recorded = self.record(directory)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&recorded.0.path)?;
        Ok(TempFile { file, recorded })
    }

    /// A new directory in a directory.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn directory_in(&self, directory: &Path) -> io::Result<TempDirectory> {
        let recorded = self.record(directory)?;
        DirBuilder::new().mode(0o700).create(&recorded.0.path)?;
        Ok(TempDirectory { recorded })
    }

    fn record(&self, directory: &Path) -> io::Result<Recorded> {
        let mut random = [0; RANDOM / 2];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let random = u64::from_ne_bytes(random);
        let path = directory.join(format!("{PREFIX}{random:016x}"));
        let record = self.records.join(format!("{random:016x}"));
        // Only what is made after this is removed when it is dropped.
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        // In one step, so that no record names but the beginning of a path.
        let torn = record.with_extension("new");
        let written = fs::write(&torn, path.as_os_str().as_bytes());
        if let Err(error) = written.and_then(|()| fs::rename(&torn, &record)) {
            let _ = fs::remove_file(&torn);
            return Err(error);
        }
        Ok(Recorded(Record { path, record }))
    }
}

impl TempFile {
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it another name, in one step.
    ///
    /// # Errors
    /// Where it cannot have that name.
    pub fn rename(self, to: &Path) -> io::Result<()> {
        fs::rename(&self.recorded.0.path, to)
    }
}

impl TempDirectory {
    pub fn path(&self) -> &Path {
        &self.recorded.0.path
    }
}

impl Record {
    fn remove(&self) -> io::Result<()> {
        remove_all(&self.path)?;
        fs::remove_file(&self.record)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            tracing::warn!(path = %self.0.path.display(), %error, "a temporary file is left");
        }
    }
}

/// What records tell of; nothing of it has been looked at.
#[derive(Debug)]
pub struct StaleTempFiles(Vec<Record>);

impl StaleTempFiles {
    /// Removes it; which may take a while.
    pub fn remove(self) {
        for left in self.0 {
            let (path, record) = (left.path.display(), left.record.display());
            // Whatever else a record names is none of ours.
            if left.is_ours() {
                match left.remove() {
                    Ok(()) => tracing::info!(%path, "removed what an earlier agent left"),
                    Err(error) => tracing::warn!(%path, %error, "a temporary file is left"),
                }
                continue;
            }
            tracing::warn!(%record, "a record names nothing that an agent made, which stays");
            if let Err(error) = fs::remove_file(&left.record) {
                tracing::warn!(%record, %error, "a record is left");
            }
        }
    }
}

impl Record {
    /// Whether the path is called as the record is, and both as an agent calls them.
    fn is_ours(&self) -> bool {
        fn text(name: Option<&std::ffi::OsStr>) -> Option<&str> {
            name.and_then(std::ffi::OsStr::to_str)
        }
        let random = text(self.path.file_name()).and_then(|name| name.strip_prefix(PREFIX));
        self.path.is_absolute()
            && random == text(self.record.file_name())
            && random.is_some_and(|random| {
                random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_recorded_and_is_named_as_ours_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let temp_files = TempFileJournal::new(&at("records")).unwrap();
        let mut file = temp_files.file_in(folder.path()).unwrap();
        let directory = temp_files.directory_in(folder.path()).unwrap();
        fs::write(directory.path().join("within"), "").unwrap();
        io::Write::write_all(file.file(), b"draft").unwrap();
        // As a kill would.
        std::mem::forget((file, directory));
        fs::write(at("of somebody else"), "").unwrap();
        let other = at("of somebody else");
        fs::write(at("records/other"), other.as_os_str().as_bytes()).unwrap();
        fs::write(at("records/torn"), "").unwrap();
        // Called as ours are, but not as this record is.
        let alike = at(".berth-00000000000000aa");
        fs::create_dir(&alike).unwrap();
        fs::write(at("records/00000000000000bb"), alike.as_os_str().as_bytes()).unwrap();
        // Cut short, a path names the directory it is in.
        let parent = folder.path().as_os_str().as_bytes();
        fs::write(at("records/00000000000000cc"), parent).unwrap();
        // One that cannot be read keeps none of the others.
        fs::create_dir(at("records/00000000000000dd")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
        temp_files.stale_files().unwrap().remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert!(other.exists() && alike.exists());
        assert_eq!(fs::read_dir(at("records")).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_that_is_not_kept_goes_with_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let temp_files = TempFileJournal::new(&at("records")).unwrap();
        drop(temp_files.file_in(folder.path()).unwrap());
        drop(temp_files.directory_in(folder.path()).unwrap());
        let kept = temp_files.file_in(folder.path()).unwrap();
        kept.rename(&at("kept")).unwrap();
        assert!(temp_files.file_in(&at("missing")).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(fs::read_dir(at("records")).unwrap().count(), 0);
    }
}
