//! An upload of several files, of which none appears before all were received.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs::File,
    io::{self, Seek},
    mem,
    path::{Path, PathBuf},
};

use super::{
    atomic_file::{AtomicFile, DestinationKey},
    files::{DIRECTORY_MODE, FileError},
    merge::merge,
    temp_files::{TempDirectory, TempFileJournal},
};

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
    #[error("is below the destination of another file")]
    BelowFile,
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
        let target = AtomicFile::with_missing_parents(path, &self.temp_files)?;
        uploaded.target = Some(target);
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
        let mut errors = Vec::new();
        let mut destinations = Vec::new();
        for (&number, uploaded) in &self.files {
            if !uploaded.has_content {
                errors.push((number, UploadError::MissingContent));
            }
            if !uploaded.has_path {
                errors.push((number, UploadError::MissingPath));
            }
            match uploaded.target.as_ref().map(AtomicFile::key).transpose() {
                Ok(key) => destinations.extend(key.map(|key| (key, number))),
                Err(error) => errors.push((number, error.into())),
            }
        }
        errors.extend(find_conflicts(destinations));
        errors
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Publishes all files, once the content of each is beside its destination. Missing directories
    /// appear with their files.
    ///
    /// # Errors
    /// With the number of the file that failed. If its content could not be copied beside its
    /// destination, or a directory could not be created, no file was published. If it could not be
    /// published, those before it were, and those in the same new directories.
    pub fn publish(mut self) -> Result<(), (u32, UploadError)> {
        let mut steps = PublishSteps::default();
        for (number, uploaded) in mem::take(&mut self.files) {
            let staged = uploaded.into_complete().and_then(|file| match file {
                Some(file) => steps.add(number, file, &self.temp_files),
                None => Ok(()),
            });
            staged.map_err(|error| (number, error.into()))?;
        }
        steps.run()
    }
}

impl UploadedFile {
    /// Returns the file with its content beside its destination.
    fn into_complete(self) -> Result<Option<AtomicFile>, FileError> {
        let Some(mut target) = self.target else {
            return Ok(None);
        };
        if let Some(mut spooled) = self.spooled {
            spooled.rewind()?;
            io::copy(&mut spooled, target.file())?;
        }
        Ok(Some(target))
    }
}

/// Returns the files whose destination is that of another file, or below it.
fn find_conflicts(mut destinations: Vec<(DestinationKey, u32)>) -> Vec<(u32, UploadError)> {
    // Everything below a file follows it directly.
    destinations.sort();
    let mut errors = Vec::new();
    let mut file: Option<DestinationKey> = None;
    for (key, number) in destinations {
        match &file {
            Some(file) if key == *file => errors.push((number, UploadError::SameDestination)),
            Some(file) if key.is_below(file) => errors.push((number, UploadError::BelowFile)),
            _ => file = Some(key),
        }
    }
    errors
}

/// The steps that publish an upload, each with the number of its first file.
#[derive(Debug, Default)]
struct PublishSteps {
    steps: Vec<(u32, PublishStep)>,
    /// The steps that add to a directory, by its identity.
    trees: HashMap<(u64, u64), usize>,
}

#[derive(Debug)]
enum PublishStep {
    File(AtomicFile),
    /// New directories with their files, in a temporary directory beside their destination.
    Tree(TempDirectory),
}

impl PublishSteps {
    fn add(
        &mut self,
        number: u32,
        file: AtomicFile,
        temp_files: &TempFileJournal,
    ) -> Result<(), FileError> {
        let key = file.key()?;
        let (directory, missing) = file.parents();
        if missing.is_empty() {
            self.steps.push((number, PublishStep::File(file)));
            return Ok(());
        }
        let index = match self.trees.entry(key.directory()) {
            Entry::Occupied(index) => *index.get(),
            Entry::Vacant(index) => {
                let tree = temp_files.create_directory_in(directory.clone())?;
                self.steps.push((number, PublishStep::Tree(tree)));
                *index.insert(self.steps.len() - 1)
            }
        };
        if let Some((_, PublishStep::Tree(tree))) = self.steps.get(index) {
            let parent = tree.handle().create_directories(missing, DIRECTORY_MODE)?;
            file.publish_in(&parent)?;
        }
        Ok(())
    }

    fn run(self) -> Result<(), (u32, UploadError)> {
        for (number, step) in self.steps {
            let published = match step {
                PublishStep::File(file) => file.publish(),
                PublishStep::Tree(tree) => merge(tree.handle(), tree.parent()),
            };
            published.map_err(|error| (number, error.into()))?;
        }
        Ok(())
    }
}
