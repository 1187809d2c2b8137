//! Directories as archives, on their way to a client.

use std::{fs::File, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    files::FileError,
    temp_files::TempFileJournal,
    unzip::{UnzipError, unzip},
};
use crate::{
    shutdown::Shutdown,
    system::files::archive::{self, ArchiveFormat, OpenSourceError, Source, unpack::Limits},
};

/// Archives that may be made or unpacked at once; each takes memory and cores.
pub const MAX_ARCHIVES: usize = 4;
/// How long an uploaded archive waits for others to be done.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{MAX_ARCHIVES} archives are being made or unpacked, which is the limit")]
    Busy,
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Unzip(#[from] UnzipError),
}

impl From<OpenSourceError> for FileError {
    fn from(error: OpenSourceError) -> Self {
        match error {
            OpenSourceError::Io(error) => error.into(),
            OpenSourceError::Virtual => FileError::VirtualFileSystem,
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

    /// Waits for a place, for 30 seconds.
    ///
    /// # Errors
    /// Where none has become free.
    pub async fn acquire_permit(&self) -> Result<Place, ArchiveError> {
        self.place_within(PATIENCE).await
    }

    async fn place_within(&self, patience: Duration) -> Result<Place, ArchiveError> {
        match timeout(patience, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(Place(place)),
            _ => Err(ArchiveError::Busy),
        }
    }

    fn place(&self) -> Result<Place, ArchiveError> {
        let place = self.places.clone().try_acquire_owned();
        place.map(Place).map_err(|_| ArchiveError::Busy)
    }

    /// Archives a directory as fast as the chunks are taken. Blocks until it is opened.
    ///
    /// # Errors
    /// Where it is no directory that can be read, or there are too many archives.
    pub fn download(&self, path: &Path, format: ArchiveFormat) -> Result<Chunks, ArchiveError> {
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
        temp_files: &TempFileJournal,
    ) -> Result<(), ArchiveError> {
        let unzipped = unzip(archive, path, temp_files, self.limits, &self.stop);
        drop(place);
        Ok(unzipped?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_waited_for_but_not_for_ever() {
        let limits = Limits { bytes: 1, ratio: 1 };
        let archives = Archives::new(limits, &Shutdown::new());
        let mut taken: Vec<_> = (0..MAX_ARCHIVES)
            .map(|_| archives.place().unwrap())
            .collect();
        let late = archives.place_within(Duration::from_millis(10)).await;
        assert!(matches!(late, Err(ArchiveError::Busy)));
        let waiting = tokio::spawn(async move { archives.acquire_permit().await });
        tokio::task::yield_now().await;
        taken.pop();
        assert!(waiting.await.unwrap().is_ok());
    }
}
