//! Several files at once: nothing appears before all of them are there.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek},
    path::{Path, PathBuf},
};

use super::{draft::Draft, drafts::Drafts, files::FileError};

/// Files that may come at once.
pub const MAX_FILES: usize = 1_000;

/// What is wrong with one of the files.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("has no content")]
    NoContent,
    #[error("is not said where it goes")]
    NoPlace,
    #[error("is there twice")]
    Twice,
    #[error("goes where another one goes")]
    SamePlace,
    #[error(transparent)]
    File(#[from] FileError),
}

/// The files of one request, by their number in it. Dropped, nothing was.
#[derive(Debug)]
pub struct Upload {
    drafts: Drafts,
    /// Where a file is kept whose place is not known yet.
    work: PathBuf,
    files: BTreeMap<u32, Uploaded>,
}

#[derive(Debug, Default)]
struct Uploaded {
    draft: Option<Draft>,
    /// It came before it was said where it goes.
    spooled: Option<File>,
    has_content: bool,
    has_place: bool,
}

impl Upload {
    #[must_use]
    pub fn new(drafts: Drafts, work: &Path) -> Self {
        Upload {
            drafts,
            work: work.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Whether there is room for that file.
    #[must_use]
    pub fn takes(&self, number: u32) -> bool {
        self.files.contains_key(&number) || self.files.len() < MAX_FILES
    }

    /// A file to write the content to.
    ///
    /// # Errors
    /// Where there is a content already, or no file can be made.
    pub fn content(&mut self, number: u32) -> Result<File, Problem> {
        let uploaded = self.files.entry(number).or_default();
        if std::mem::replace(&mut uploaded.has_content, true) {
            return Err(Problem::Twice);
        }
        if let Some(draft) = &mut uploaded.draft {
            return Ok(draft.file().try_clone().map_err(FileError::from)?);
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
    pub fn place(&mut self, number: u32, path: &Path) -> Result<(), Problem> {
        let drafts = &self.drafts;
        let uploaded = self.files.entry(number).or_default();
        if std::mem::replace(&mut uploaded.has_place, true) {
            return Err(Problem::Twice);
        }
        uploaded.draft = Some(Draft::new(path, None, drafts)?);
        Ok(())
    }

    /// Notes that something was said of the file which was told to be wrong already.
    pub fn note_wrong(&mut self, number: u32, of_place: bool) {
        let uploaded = self.files.entry(number).or_default();
        if of_place {
            uploaded.has_place = true;
        } else {
            uploaded.has_content = true;
        }
    }

    /// What the whole lacks, by the file's number.
    #[must_use]
    pub fn lacks(&self) -> Vec<(u32, Problem)> {
        let mut targets = BTreeMap::new();
        let mut lacks = Vec::new();
        for (&number, uploaded) in &self.files {
            if !uploaded.has_content {
                lacks.push((number, Problem::NoContent));
            }
            if !uploaded.has_place {
                lacks.push((number, Problem::NoPlace));
            }
            if let Some(draft) = &uploaded.draft
                && targets.insert(draft.target(), number).is_some()
            {
                lacks.push((number, Problem::SamePlace));
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
    pub fn publish(mut self) -> Result<(), (u32, Problem)> {
        for (&number, uploaded) in &mut self.files {
            if let (Some(mut spooled), Some(draft)) = (uploaded.spooled.take(), &mut uploaded.draft)
            {
                let copied = spooled
                    .rewind()
                    .and_then(|()| io::copy(&mut spooled, draft.file()));
                copied.map_err(|error| (number, FileError::from(error).into()))?;
            }
        }
        for (number, uploaded) in self.files {
            if let Some(draft) = uploaded.draft {
                draft
                    .publish()
                    .map_err(|error| (number, Problem::File(error)))?;
            }
        }
        Ok(())
    }
}
