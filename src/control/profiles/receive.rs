//! Receives and inspects the archive of a save.
//!
//! The archive of a browser is inspected while it arrives. That of a client is inspected when it
//! has arrived, so that slow clients do not occupy threads.

use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    ArchiveSourceError, ProfileError, Profiles,
    inspection::{InspectError, InspectLimits, Inspection, inspect},
    save::PendingSave,
    spool::{ReceiveLimits, Spool, SpoolReader, SpoolUse, SpooledArchive},
};

/// The lowest rate at which an archive may arrive, or be stored, in bytes per second.
const MIN_TRANSFER_RATE: u64 = 2 << 20;
/// The time that each of these has in addition, whatever its size.
const BASE_TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// The inspection of an archive, in a thread. It ends by itself if the archive does not arrive.
pub(super) type Inspecting = JoinHandle<Result<Inspection, InspectError>>;

impl Profiles {
    /// Receives an archive of a browser, and inspects it meanwhile. A failure ends the save.
    pub(super) async fn receive_and_inspect(
        &self,
        pending: PendingSave,
        content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
    ) -> Result<(PendingSave, SpooledArchive, Inspecting), ProfileError> {
        let (pending, spool) = self.create_spool(pending).await?;
        let inspecting = self.inspect(spool.reader(), pending.limits);
        let (pending, archive) = self.receive(pending, spool, content).await?;
        Ok((pending, archive, inspecting))
    }

    /// Receives an archive of a client. A failure ends the save.
    pub(super) async fn receive_upload(
        &self,
        pending: PendingSave,
        content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
    ) -> Result<(PendingSave, SpooledArchive), ProfileError> {
        let (pending, spool) = self.create_spool(pending).await?;
        self.receive(pending, spool, content).await
    }

    fn spool_use(&self) -> SpoolUse {
        match self.inner.blobs.links_files() {
            true => SpoolUse::Stays,
            false => SpoolUse::Vanishes,
        }
    }

    async fn create_spool(
        &self,
        pending: PendingSave,
    ) -> Result<(PendingSave, Spool), ProfileError> {
        let created = Spool::create(&self.inner.spool, self.spool_use()).await;
        pending.unless_failed(created).await
    }

    async fn receive(
        &self,
        pending: PendingSave,
        spool: Spool,
        content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
    ) -> Result<(PendingSave, SpooledArchive), ProfileError> {
        let bytes = self.inner.limits.archive_bytes;
        let limits = ReceiveLimits {
            bytes,
            time: transfer_timeout(bytes),
        };
        let received = spool.receive(content, limits).await;
        pending.unless_failed(received).await
    }

    /// Inspects an archive in a thread.
    pub(super) fn inspect(&self, archive: SpoolReader, limits: InspectLimits) -> Inspecting {
        let spool = self.inner.spool.clone();
        spawn_blocking(move || {
            let work = tempfile::tempdir_in(spool)?;
            inspect(archive, work.path(), limits)
        })
    }
}

/// Returns how long an archive of that size may take to arrive, or to be stored.
pub(super) fn transfer_timeout(bytes: u64) -> Duration {
    BASE_TRANSFER_TIMEOUT + Duration::from_secs(bytes / MIN_TRANSFER_RATE)
}
