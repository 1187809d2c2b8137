//! An upload of several files, of which none appears before all were received.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    mem,
    ops::Range,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    access::FileAccess,
    atomic_file::{AtomicFile, DestinationKey},
    files::{DIRECTORY_MODE, FileError},
    merge::merge,
    temp_files::{TempDirectory, TempFileJournal},
};
use crate::system::files::directory::DirectoryHandle;

/// The limit on files in one upload.
pub const MAX_FILES: usize = 1_000;

/// The part of the limit on open files that directories of uploads may have.
const DIRECTORY_SHARE: usize = 8;
/// The least number of directories, whatever the limit on open files is.
const MIN_DIRECTORIES: usize = 16;
/// The descriptors of a directory: its own, and that of a temporary directory in it.
const DESCRIPTORS_PER_DIRECTORY: usize = 2;

/// Returns the limit on directories that all uploads write to at once.
#[must_use]
pub fn max_directories(open_files: usize) -> usize {
    (open_files / DIRECTORY_SHARE / DESCRIPTORS_PER_DIRECTORY).clamp(MIN_DIRECTORIES, MAX_FILES)
}

/// Returns the number of descriptors that these directories need.
#[must_use]
pub fn max_descriptors(open_files: usize) -> usize {
    DESCRIPTORS_PER_DIRECTORY * max_directories(open_files)
}

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
    #[error("limit of directories in concurrent uploads reached ({0})")]
    DirectoryLimit(usize),
    #[error(transparent)]
    File(#[from] FileError),
}

/// The upload service; clones share its limit.
#[derive(Debug, Clone)]
pub struct Uploads {
    temp_files: TempFileJournal,
    /// The directory for content that arrives before its destination.
    work: Arc<Path>,
    max_directories: usize,
    directories: Arc<Semaphore>,
}

/// The files of one request, by their number in it. Dropping it discards them.
///
/// An upload needs descriptors only for the directories, the file that is being received, and
/// content that precedes its destination.
#[derive(Debug)]
pub struct Upload {
    uploads: Uploads,
    files: BTreeMap<u32, UploadedFile>,
    /// The directories of the files, by identity. Each is open once.
    directories: HashMap<(u64, u64), SharedDirectory>,
    /// All content that arrived before its destination.
    spool: Option<File>,
}

#[derive(Debug)]
struct SharedDirectory {
    handle: Arc<DirectoryHandle>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct UploadedFile {
    target: Option<AtomicFile>,
    /// The position of the content in the spool, if it arrived before the destination.
    spooled: Option<Range<u64>>,
    has_content: bool,
    has_path: bool,
}

impl Uploads {
    /// Creates the service of a process that may have that many open files.
    #[must_use]
    pub fn new(temp_files: TempFileJournal, work: &Path, open_files: usize) -> Self {
        let max_directories = max_directories(open_files);
        Uploads {
            temp_files,
            work: work.into(),
            max_directories,
            directories: Arc::new(Semaphore::new(max_directories)),
        }
    }

    /// Returns an upload without files.
    #[must_use]
    pub fn start(&self) -> Upload {
        Upload {
            uploads: self.clone(),
            files: BTreeMap::new(),
            directories: HashMap::new(),
            spool: None,
        }
    }
}

impl Upload {
    /// Returns whether the file with that number is within the limit.
    #[must_use]
    pub fn has_room_for(&self, number: u32) -> bool {
        self.files.contains_key(&number) || self.files.len() < MAX_FILES
    }

    /// Returns a file to write the content to, until [`Upload::finish_content`].
    ///
    /// # Errors
    /// If the content was already received, or the file cannot be created.
    pub fn create_content(&mut self, number: u32) -> Result<File, UploadError> {
        let uploaded = self.files.entry(number).or_default();
        if mem::replace(&mut uploaded.has_content, true) {
            return Err(UploadError::Duplicate);
        }
        if let Some(target) = &mut uploaded.target {
            let file = target.file().and_then(|file| file.try_clone());
            return Ok(file.map_err(FileError::from)?);
        }
        let spool = match self.spool.take() {
            Some(spool) => spool,
            // It never has a name, so it disappears with its last handle.
            None => tempfile::tempfile_in(&self.uploads.work).map_err(FileError::from)?,
        };
        let spool = self.spool.insert(spool);
        let start = spool.seek(SeekFrom::End(0)).map_err(FileError::from)?;
        uploaded.spooled = Some(start..start);
        Ok(spool.try_clone().map_err(FileError::from)?)
    }

    /// Records that all content of a file was written.
    ///
    /// # Errors
    /// If the file cannot be examined.
    pub fn finish_content(&mut self, number: u32) -> Result<(), UploadError> {
        let uploaded = self.files.entry(number).or_default();
        if let (Some(spooled), Some(spool)) = (&mut uploaded.spooled, &mut self.spool) {
            spooled.end = spool.seek(SeekFrom::End(0)).map_err(FileError::from)?;
        } else if let Some(target) = &mut uploaded.target {
            target.close().map_err(FileError::from)?;
        }
        Ok(())
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
        let (uploads, directories) = (&self.uploads, &mut self.directories);
        let share = |directory| uploads.share(directories, directory);
        let mut target = AtomicFile::with_missing_parents(path, &uploads.temp_files, share)?;
        target.close().map_err(FileError::from)?;
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
            let complete = uploaded.into_complete(self.spool.as_mut());
            let staged = complete.and_then(|file| match file {
                Some(file) => steps.add(number, file, &self.uploads.temp_files),
                None => Ok(()),
            });
            staged.map_err(|error| (number, error.into()))?;
        }
        steps.run(self.uploads.temp_files.access())
    }
}

impl Uploads {
    /// Returns the handle that the upload has on this directory already, or adds this one.
    fn share(
        &self,
        directories: &mut HashMap<(u64, u64), SharedDirectory>,
        directory: Arc<DirectoryHandle>,
    ) -> Result<Arc<DirectoryHandle>, UploadError> {
        let metadata = directory.metadata().map_err(FileError::from)?;
        let shared = match directories.entry((metadata.dev(), metadata.ino())) {
            Entry::Occupied(shared) => shared.into_mut(),
            Entry::Vacant(vacant) => {
                let permit = self.directories.clone().try_acquire_owned();
                vacant.insert(SharedDirectory {
                    handle: directory,
                    _permit: permit
                        .map_err(|_| UploadError::DirectoryLimit(self.max_directories))?,
                })
            }
        };
        Ok(shared.handle.clone())
    }
}

impl UploadedFile {
    /// Returns the file with its content beside its destination.
    fn into_complete(self, spool: Option<&mut File>) -> Result<Option<AtomicFile>, FileError> {
        let Some(mut target) = self.target else {
            return Ok(None);
        };
        if let (Some(spooled), Some(spool)) = (self.spooled, spool) {
            spool.seek(SeekFrom::Start(spooled.start))?;
            let length = spooled.end - spooled.start;
            io::copy(&mut spool.take(length), target.file()?)?;
            target.close()?;
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

    fn run(self, access: &FileAccess) -> Result<(), (u32, UploadError)> {
        for (number, step) in self.steps {
            let published = match step {
                PublishStep::File(file) => file.publish(),
                PublishStep::Tree(tree) => access
                    .give_tree(tree.handle(), tree.parent())
                    .map_err(FileError::from)
                    .and_then(|()| merge(tree.handle(), tree.parent())),
            };
            published.map_err(|error| (number, error.into()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, path::PathBuf};

    use super::*;

    /// Returns the number of descriptors of this process.
    fn descriptors() -> usize {
        fs::read_dir("/proc/self/fd").unwrap().count()
    }

    fn uploads(directory: &Path, open_files: usize) -> Uploads {
        let records = directory.join("journal");
        let journal = TempFileJournal::new(&records, FileAccess::default()).unwrap();
        Uploads::new(journal, directory, open_files)
    }

    fn receive(upload: &mut Upload, number: u32) {
        let mut file = upload.create_content(number).unwrap();
        write!(file, "content {number}").unwrap();
        drop(file);
        upload.finish_content(number).unwrap();
    }

    #[test]
    fn received_files_take_no_descriptors() {
        const FILES: u32 = 300;
        let directory = tempfile::tempdir().unwrap();
        let path = |number: u32| -> PathBuf {
            directory
                .path()
                .join(format!("new {}/{number}", number % 3))
        };
        let mut upload = uploads(directory.path(), usize::MAX).start();
        let before = descriptors();
        for number in 0..FILES {
            // The content arrives before and after its path.
            if number % 2 == 0 {
                receive(&mut upload, number);
            }
            upload.set_destination(number, &path(number)).unwrap();
            if number % 2 == 1 {
                receive(&mut upload, number);
            }
        }
        let opened = descriptors().saturating_sub(before);
        assert!(opened < 4, "{opened} descriptors");
        assert!(upload.validate().is_empty());
        upload.publish().unwrap();
        for number in 0..FILES {
            let content = fs::read_to_string(path(number)).unwrap();
            assert_eq!(content, format!("content {number}"));
        }
        assert_eq!(descriptors(), before);
    }

    #[test]
    fn directories_of_all_uploads_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = uploads(directory.path(), 0);
        let path = |number: u32| {
            let parent = directory.path().join(number.to_string());
            fs::create_dir_all(&parent).unwrap();
            parent.join("file")
        };
        let (mut first, mut second) = (uploads.start(), uploads.start());
        for number in 0..MIN_DIRECTORIES as u32 {
            first.set_destination(number, &path(number)).unwrap();
        }
        // A directory that the upload uses already does not count again.
        let again = path(0).with_file_name("again");
        first.set_destination(100, &again).unwrap();
        for upload in [&mut first, &mut second] {
            let refused = upload.set_destination(200, &path(200));
            assert!(matches!(refused, Err(UploadError::DirectoryLimit(16))));
        }
        drop(first);
        second.set_destination(201, &path(200)).unwrap();
    }
}
