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

const PREFIX: &str = ".berth-";
/// Of the random part, in hexadecimal digits.
const RANDOM: usize = 16;

/// Where they are recorded; clones share it.
#[derive(Debug, Clone)]
pub struct Drafts {
    records: Arc<Path>,
}

/// A path that is removed when this is dropped, and its record with it.
#[derive(Debug)]
struct Recorded {
    path: PathBuf,
    record: PathBuf,
}

/// A file that is removed when this is dropped, unless it has got a name to keep.
#[derive(Debug)]
pub struct DraftFile {
    file: File,
    recorded: Recorded,
}

/// A directory that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct DraftDirectory {
    recorded: Recorded,
}

impl Drafts {
    /// # Errors
    /// Where the folder of records cannot be made.
    pub fn new(records: &Path) -> io::Result<Self> {
        fs::create_dir_all(records)?;
        Ok(Drafts {
            records: records.into(),
        })
    }

    /// What earlier agents have recorded and not removed. Nothing of this agent's may be there yet.
    ///
    /// # Errors
    /// Where the records cannot be read.
    pub fn left_over(&self) -> io::Result<LeftOver> {
        let mut found = Vec::new();
        for record in fs::read_dir(&self.records)? {
            let record = record?.path();
            let path = PathBuf::from(OsString::from_vec(fs::read(&record)?));
            found.push((path, record));
        }
        Ok(LeftOver(found))
    }

    /// A new file in a directory.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn file_in(&self, directory: &Path) -> io::Result<DraftFile> {
        let recorded = self.record(directory)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&recorded.path)?;
        Ok(DraftFile { file, recorded })
    }

    /// A new directory in a directory.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn directory_in(&self, directory: &Path) -> io::Result<DraftDirectory> {
        let recorded = self.record(directory)?;
        DirBuilder::new().mode(0o700).create(&recorded.path)?;
        Ok(DraftDirectory { recorded })
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
        fs::write(&record, path.as_os_str().as_bytes())?;
        Ok(Recorded { path, record })
    }
}

impl DraftFile {
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it another name, in one step.
    ///
    /// # Errors
    /// Where it cannot have that name.
    pub fn rename(self, to: &Path) -> io::Result<()> {
        fs::rename(&self.recorded.path, to)
    }
}

impl DraftDirectory {
    pub fn path(&self) -> &Path {
        &self.recorded.path
    }
}

impl Recorded {
    fn remove(&self) -> io::Result<()> {
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&self.path),
            Ok(_) => fs::remove_file(&self.path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::remove_file(&self.record),
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(path = %self.path.display(), %error, "a temporary file is left");
        }
    }
}

/// Paths, and their records.
#[derive(Debug)]
pub struct LeftOver(Vec<(PathBuf, PathBuf)>);

impl LeftOver {
    /// Removes it; which may take a while.
    pub fn remove(self) {
        for (path, record) in self.0 {
            // A torn record names nothing, or something else: only what is called as ours are is removed.
            if is_ours(&path) {
                tracing::info!(path = %path.display(), "removed what an earlier agent left");
                drop(Recorded { path, record });
            } else if let Err(error) = fs::remove_file(&record) {
                tracing::warn!(record = %record.display(), %error, "a record is left");
            }
        }
    }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let random = name.and_then(|name| name.strip_prefix(PREFIX));
    path.is_absolute()
        && random.is_some_and(|random| {
            random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_recorded_and_is_named_as_ours_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let drafts = Drafts::new(&at("records")).unwrap();
        let mut file = drafts.file_in(folder.path()).unwrap();
        let directory = drafts.directory_in(folder.path()).unwrap();
        fs::write(directory.path().join("within"), "").unwrap();
        io::Write::write_all(file.file(), b"draft").unwrap();
        // As a kill would.
        std::mem::forget((file, directory));
        fs::write(at("of somebody else"), "").unwrap();
        let other = at("of somebody else");
        fs::write(at("records/other"), other.as_os_str().as_bytes()).unwrap();
        fs::write(at("records/torn"), "").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        drafts.left_over().unwrap().remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(other.exists());
        assert_eq!(fs::read_dir(at("records")).unwrap().count(), 0);
    }

    #[test]
    fn a_draft_that_is_not_kept_goes_with_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let drafts = Drafts::new(&at("records")).unwrap();
        drop(drafts.file_in(folder.path()).unwrap());
        drop(drafts.directory_in(folder.path()).unwrap());
        let kept = drafts.file_in(folder.path()).unwrap();
        kept.rename(&at("kept")).unwrap();
        assert!(drafts.file_in(&at("missing")).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(fs::read_dir(at("records")).unwrap().count(), 0);
    }
}
