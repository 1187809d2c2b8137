//! Several files at once: nothing appears before all of them are there.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek},
    path::{Path, PathBuf},
};

use super::{atomic_file::AtomicFile, files::FileError, temp_files::TempFileJournal};

/// Files that may come at once.
pub const MAX_FILES: usize = 1_000;

/// What is wrong with one of the files.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("has no content")]
    MissingContent,
    #[error("is not said where it goes")]
    MissingPath,
    #[error("is there twice")]
    Duplicate,
    #[error("goes where another one goes")]
    SameDestination,
    #[error(transparent)]
    File(#[from] FileError),
}

/// The files of one request, by their number in it. Dropped, nothing was.
#[derive(Debug)]
pub struct Upload {
    temp_files: TempFileJournal,
    /// Where a file is kept whose place is not known yet.
    work: PathBuf,
    files: BTreeMap<u32, Uploaded>,
}

#[derive(Debug, Default)]
struct Uploaded {
    file: Option<AtomicFile>,
    /// It came before it was said where it goes.
    spooled: Option<File>,
    has_content: bool,
    has_place: bool,
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

    /// Whether there is room for that file.
    #[must_use]
    pub fn has_room_for(&self, number: u32) -> bool {
        self.files.contains_key(&number) || self.files.len() < MAX_FILES
    }

    /// A file to write the content to.
    ///
    /// # Errors
    /// Where there is a content already, or no file can be made.
    pub fn create_content(&mut self, number: u32) -> Result<File, UploadError> {
        let uploaded = self.files.entry(number).or_default();
        if std::mem::replace(&mut uploaded.has_content, true) {
            return Err(UploadError::Duplicate);
        }
        if let Some(file) = &mut uploaded.file {
            return Ok(file.file().try_clone().map_err(FileError::from)?);
        }
        // It has no name from the beginning, so that it goes with its last handle.
        let spooled = tempfile::tempfile_in(&self.work).map_err(FileError::from)?;
        let writer = spooled.try_clone().map_err(FileError::from)?;
        uploaded.spooled = Some(spooled);
        Ok(writer)
    }

    /// Notes where the file goes.
    ///
    /// # Errors
    /// Where it cannot go there, or another place is said already.
    pub fn set_destination(&mut self, number: u32, path: &Path) -> Result<(), UploadError> {
        let temp_files = &self.temp_files;
        let uploaded = self.files.entry(number).or_default();
        if std::mem::replace(&mut uploaded.has_place, true) {
            return Err(UploadError::Duplicate);
        }
        uploaded.file = Some(AtomicFile::new(path, None, temp_files)?);
        Ok(())
    }

    /// Records that the request has a destination for the file, although an invalid one.
    pub fn mark_path_invalid(&mut self, number: u32) {
        self.files.entry(number).or_default().has_place = true;
    }

    /// Records that the request has content for the file, although it was not stored.
    pub fn mark_content_invalid(&mut self, number: u32) {
        self.files.entry(number).or_default().has_content = true;
    }

    /// What the whole lacks, by the file's number.
    #[must_use]
    pub fn validate(&self) -> Vec<(u32, UploadError)> {
        let mut targets = BTreeMap::new();
        let mut lacks = Vec::new();
        for (&number, uploaded) in &self.files {
            if !uploaded.has_content {
                lacks.push((number, UploadError::MissingContent));
            }
            if !uploaded.has_place {
                lacks.push((number, UploadError::MissingPath));
            }
            if let Some(file) = &uploaded.file
                && targets.insert(file.target(), number).is_some()
            {
                lacks.push((number, UploadError::SameDestination));
            }
        }
        lacks
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Gives all files their names, once all are whole and beside their places.
    ///
    /// # Errors
    /// The number of the file that could not be placed. Where it could not be brought beside its place, none was; where it could not take its name,
    /// those before it have theirs.
    pub fn publish(mut self) -> Result<(), (u32, UploadError)> {
        for (&number, uploaded) in &mut self.files {
            if let (Some(mut spooled), Some(file)) = (uploaded.spooled.take(), &mut uploaded.file) {
                let copied = spooled
                    .rewind()
                    .and_then(|()| io::copy(&mut spooled, file.file()));
                copied.map_err(|error| (number, FileError::from(error).into()))?;
            }
        }
        for (number, uploaded) in self.files {
            if let Some(file) = uploaded.file {
                file.publish()
                    .map_err(|error| (number, UploadError::File(error)))?;
            }
        }
        Ok(())
    }
}
