//! Directories as archives, on their way to a client.

use std::{fs::File, io, path::Path, sync::Arc};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    drafts::Drafts,
    files::FileError,
    unzip::{UnzipError, unzip},
};
use crate::{
    shutdown::Shutdown,
    system::archive::{self, Format, OpenError, Source, unpack::Limits},
};

/// Archives that may be made or unpacked at once; each takes memory and cores.
pub const MAX_ARCHIVES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{MAX_ARCHIVES} archives are being made or unpacked, which is the limit")]
    Busy,
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Unzip(#[from] UnzipError),
}

impl From<OpenError> for FileError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => error.into(),
            OpenError::Virtual => FileError::Virtual,
        }
    }
}

/// An archive as it is made, chunk by chunk.
pub type Chunks = mpsc::Receiver<io::Result<Bytes>>;

/// The archives in the making; clones share them.
#[derive(Debug, Clone)]
pub struct Archives {
    places: Arc<Semaphore>,
    limits: Limits,
    stop: CancellationToken,
}

/// The right to make or unpack an archive.
#[derive(Debug)]
pub struct Place(
    #[expect(dead_code, reason = "it counts as long as it is held")] OwnedSemaphorePermit,
);

impl Archives {
    #[must_use]
    pub fn new(limits: Limits, shutdown: &Shutdown) -> Self {
        Archives {
            stop: shutdown.token(),
            places: Arc::new(Semaphore::new(MAX_ARCHIVES)),
            limits,
        }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// Where there will be none.
    pub async fn next_place(&self) -> Result<Place, ArchiveError> {
        let place = self.places.clone().acquire_owned().await;
        place.map(Place).map_err(|_| ArchiveError::Busy)
    }

    fn place(&self) -> Result<Place, ArchiveError> {
        let place = self.places.clone().try_acquire_owned();
        place.map(Place).map_err(|_| ArchiveError::Busy)
    }

    /// Archives a directory as fast as the chunks are taken. Blocks until it is opened.
    ///
    /// # Errors
    /// Where it is no directory that can be read, or there are too many archives.
    pub fn download(&self, path: &Path, format: Format) -> Result<Chunks, ArchiveError> {
        let place = self.place()?;
        let source = Source::open(path).map_err(FileError::from)?;
        let directory = path.to_owned();
        let chunks = archive::stream(source, format, move |written| {
            match written {
                Ok(skipped) if skipped.is_empty() => {}
                Ok(skipped) => tracing::info!(
                    directory = %directory.display(),
                    count = skipped.count(),
                    "not all of a directory could be archived as it was"
                ),
                Err(error) => tracing::debug!(
                    directory = %directory.display(),
                    %error,
                    "an archive broke off"
                ),
            }
            drop(place);
        });
        Ok(chunks.map_err(FileError::from)?)
    }

    /// Unpacks a zip archive into a directory. Blocks until that is done.
    ///
    /// # Errors
    /// Where the archive or the directory is bad; see [`unzip`].
    pub fn unzip(
        &self,
        place: Place,
        archive: File,
        path: &Path,
        drafts: &Drafts,
    ) -> Result<(), ArchiveError> {
        let unzipped = unzip(archive, path, drafts, self.limits, &self.stop);
        drop(place);
        Ok(unzipped?)
    }
}
