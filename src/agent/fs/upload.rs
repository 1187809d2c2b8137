//! An upload of several files, of which none appears before all were received.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek},
    mem,
    path::{Path, PathBuf},
};

use super::{atomic_file::AtomicFile, files::FileError, temp_files::TempFileJournal};

/// The limit on files in one upload.
pub const MAX_FILES: usize = 1_000;

/// The error of one file of an upload.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("is required")]
    MissingContent,
    #[error("is required")]
    MissingPath,
    #[error("is given twice")]
    Duplicate,
    #[error("has the same destination as another file")]
    SameDestination,
    #[error(transparent)]
    File(#[from] FileError),
}

/// The files of one request, by their number in it. Dropping it discards them.
#[derive(Debug)]
pub struct Upload {
    temp_files: TempFileJournal,
    /// The directory for content that arrives before its destination.
    work: PathBuf,
    files: BTreeMap<u32, UploadedFile>,
}

#[derive(Debug, Default)]
struct UploadedFile {
    target: Option<AtomicFile>,
    /// The content, if it arrived before the destination.
    spooled: Option<File>,
    has_content: bool,
    has_path: bool,
}

impl Upload {
    #[must_use]
    pub fn new(temp_files: TempFileJournal, work: &Path) -> Self {
        Upload {
            temp_files,
            work: work.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Returns whether the file with that number is within the limit.
    #[must_use]
    pub fn has_room_for(&self, number: u32) -> bool {
        self.files.contains_key(&number) || self.files.len() < MAX_FILES
    }

    /// Returns a file to write the content to.
    ///
    /// # Errors
    /// If the content was already received, or the file cannot be created.
    pub fn create_content(&mut self, number: u32) -> Result<File, UploadError> {
        let uploaded = self.files.entry(number).or_default();
        if mem::replace(&mut uploaded.has_content, true) {
            return Err(UploadError::Duplicate);
        }
        if let Some(target) = &mut uploaded.target {
            return Ok(target.file().try_clone().map_err(FileError::from)?);
        }
        // It never has a name, so it disappears with its last handle.
        let spooled = tempfile::tempfile_in(&self.work).map_err(FileError::from)?;
        let writer = spooled.try_clone().map_err(FileError::from)?;
        uploaded.spooled = Some(spooled);
        Ok(writer)
    }

    /// Sets the destination of a file.
    ///
    /// # Errors
    /// If it is unsuitable, or was already set.
    pub fn set_destination(&mut self, number: u32, path: &Path) -> Result<(), UploadError> {
        let uploaded = self.files.entry(number).or_default();
        if mem::replace(&mut uploaded.has_path, true) {
            return Err(UploadError::Duplicate);
        }
        uploaded.target = Some(AtomicFile::new(path, None, &self.temp_files)?);
        Ok(())
    }

    /// Records that the request has a destination for the file, although an invalid one.
    pub fn mark_path_invalid(&mut self, number: u32) {
        self.files.entry(number).or_default().has_path = true;
    }

    /// Records that the request has content for the file, although it was not stored.
    pub fn mark_content_invalid(&mut self, number: u32) {
        self.files.entry(number).or_default().has_content = true;
    }

    /// Returns the errors that only the complete request shows, with the numbers of the files.
    #[must_use]
    pub fn validate(&self) -> Vec<(u32, UploadError)> {
        let mut targets = BTreeMap::new();
        let mut errors = Vec::new();
        for (&number, uploaded) in &self.files {
            if !uploaded.has_content {
                errors.push((number, UploadError::MissingContent));
            }
            if !uploaded.has_path {
                errors.push((number, UploadError::MissingPath));
            }
            if let Some(target) = &uploaded.target
                && targets.insert(target.target(), number).is_some()
            {
                errors.push((number, UploadError::SameDestination));
            }
        }
        errors
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Publishes all files, once the content of each is beside its destination.
    ///
    /// # Errors
    /// With the number of the file that failed. If its content could not be copied beside its
    /// destination, no file was published; if it could not be published, those before it were.
    pub fn publish(mut self) -> Result<(), (u32, UploadError)> {
        for (&number, uploaded) in &mut self.files {
            if let (Some(mut spooled), Some(target)) =
                (uploaded.spooled.take(), &mut uploaded.target)
            {
                let copied = spooled
                    .rewind()
                    .and_then(|()| io::copy(&mut spooled, target.file()));
                copied.map_err(|error| (number, FileError::from(error).into()))?;
            }
        }
        for (number, uploaded) in self.files {
            if let Some(target) = uploaded.target {
                target.publish().map_err(|error| (number, error.into()))?;
            }
        }
        Ok(())
    }
}
