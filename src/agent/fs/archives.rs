//! Directories sent to clients as archives, and uploaded archives, up to a common limit.

use std::{fs::File, io, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    files::{FileError, open_tree},
    temp_files::TempFileJournal,
    unzip::{UnzipError, unzip},
};
use crate::{
    shutdown::Shutdown,
    system::files::{
        archive::{self, ArchiveFormat, ArchiveSource, OpenSourceError, unpack::UnpackLimits},
        root::RootDirectory,
    },
};

/// The limit on archives that are created or unpacked at once; each needs memory and cores.
pub const MAX_ARCHIVES: usize = 4;
/// The time that an uploaded archive waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("archive limit reached ({MAX_ARCHIVES})")]
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
            OpenSourceError::VirtualFileSystem => FileError::VirtualFileSystem,
        }
    }
}

/// The chunks of an archive that is being created.
pub type ArchiveChunks = mpsc::Receiver<io::Result<Bytes>>;

/// The archive service; clones share its limit.
#[derive(Debug, Clone)]
pub struct Archives {
    root: RootDirectory,
    permits: Arc<Semaphore>,
    limits: UnpackLimits,
    shutdown: CancellationToken,
}

/// The right to create or unpack one archive, until it is dropped.
#[derive(Debug)]
pub struct ArchivePermit(
    #[expect(dead_code, reason = "it counts as long as it is held")] OwnedSemaphorePermit,
);

impl Archives {
    #[must_use]
    pub fn new(root: RootDirectory, limits: UnpackLimits, shutdown: &Shutdown) -> Self {
        Archives {
            root,
            shutdown: shutdown.token(),
            permits: Arc::new(Semaphore::new(MAX_ARCHIVES)),
            limits,
        }
    }

    /// Waits up to 30 seconds for a permit.
    ///
    /// # Errors
    /// If none has become available.
    pub async fn acquire_permit(&self) -> Result<ArchivePermit, ArchiveError> {
        self.acquire_permit_within(PERMIT_TIMEOUT).await
    }

    async fn acquire_permit_within(&self, limit: Duration) -> Result<ArchivePermit, ArchiveError> {
        match timeout(limit, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ArchivePermit(permit)),
            _ => Err(ArchiveError::Busy),
        }
    }

    fn try_acquire_permit(&self) -> Result<ArchivePermit, ArchiveError> {
        let permit = self.permits.clone().try_acquire_owned();
        permit.map(ArchivePermit).map_err(|_| ArchiveError::Busy)
    }

    /// Archives a directory at the pace at which the chunks are received. Blocks only while the
    /// directory is opened.
    ///
    /// # Errors
    /// If it is not a readable directory, files of the agent are below it, or the archive limit is
    /// reached.
    pub fn download(
        &self,
        path: &Path,
        format: ArchiveFormat,
    ) -> Result<ArchiveChunks, ArchiveError> {
        let permit = self.try_acquire_permit()?;
        let directory = open_tree(&self.root, path)?.open_readable();
        let directory = directory.map_err(FileError::from)?;
        let source = ArchiveSource::from_directory(directory).map_err(FileError::from)?;
        let directory = path.to_owned();
        let chunks = archive::stream(source, format, move |written| {
            let directory = directory.display();
            match written {
                Ok(skipped) if skipped.is_empty() => {}
                Ok(skipped) => {
                    let count = skipped.count();
                    tracing::info!(%directory, count, "archive lacks or alters some entries");
                }
                Err(error) => tracing::debug!(%directory, %error, "archive aborted"),
            }
            drop(permit);
        });
        Ok(chunks.map_err(FileError::from)?)
    }

    /// Unpacks a zip archive into a directory. Blocks until it is done.
    ///
    /// # Errors
    /// If the archive or the directory is unsuitable; see [`unzip`].
    pub fn unzip(
        &self,
        permit: ArchivePermit,
        archive: File,
        path: &Path,
        temp_files: &TempFileJournal,
    ) -> Result<(), ArchiveError> {
        let result = unzip(archive, path, temp_files, self.limits, &self.shutdown);
        drop(permit);
        Ok(result?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permit_is_granted_when_released_and_refused_after_timeout() {
        let limits = UnpackLimits { bytes: 1, ratio: 1 };
        let archives = Archives::new(RootDirectory::default(), limits, &Shutdown::new());
        let mut permits: Vec<_> = (0..MAX_ARCHIVES)
            .map(|_| archives.try_acquire_permit().unwrap())
            .collect();
        let refused = archives
            .acquire_permit_within(Duration::from_millis(10))
            .await;
        assert!(matches!(refused, Err(ArchiveError::Busy)));
        let waiting = tokio::spawn(async move { archives.acquire_permit().await });
        tokio::task::yield_now().await;
        permits.pop();
        assert!(waiting.await.unwrap().is_ok());
    }
}
