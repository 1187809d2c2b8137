//! Stores the recordings that stopped hosts left behind, because their agent was killed or did not
//! have enough time to transfer them.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::io::ReaderStream;

use super::{
    MAX_REPLAYS_PER_BROWSER, ReplayError, Replays, TransferError,
    orphaned_recording::{
        OrphanedRecording, browsers_in, open_regular, recordings_in, remove_if_older,
    },
    state::{Event, State},
};
use crate::{
    api::ids::{BrowserId, ProjectId, ReplayId},
    backoff::Backoff,
    control::store::{ReplayEnd, StoreError},
    system::media::recorder::{self, files::DRAFT_SUFFIX},
};

/// The first and the longest delay before a failed attempt is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The bytes read from a file at once.
const CHUNK: usize = 256 << 10;
/// The program that finalizes the recording of a killed agent, if it is installed.
const FFMPEG: &str = "ffmpeg";
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(120);

impl Replays {
    /// Stores the recordings that the host of `browser` left behind. Retries until that succeeds or
    /// the server shuts down. The host must have stopped.
    pub fn take_over(&self, browser: BrowserId) -> JoinHandle<()> {
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
            while let Err(error) = this.take_over_once(&browser).await {
                if this.inner.shutdown.is_requested() {
                    return;
                }
                tracing::warn!(%browser, %error, "cannot store orphaned recordings; retrying");
                if !this.inner.shutdown.sleep(delays.next_delay()).await {
                    return;
                }
            }
        })
    }

    /// Starts [`Self::take_over`] for every browser of an earlier run that has open replays or
    /// orphaned recordings, except those of registered hosts.
    pub(super) async fn take_over_all(&self) -> Result<(), StoreError> {
        let directory = self.inner.orphaned.clone();
        let listed = run_blocking(move || browsers_in(&directory)).await;
        let orphaned = listed.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot list orphaned recordings");
            BTreeSet::new()
        });
        let open = self.inner.store.browsers_with_open_replays().await?;
        for browser in orphaned.into_iter().chain(open).collect::<BTreeSet<_>>() {
            self.take_over(browser);
        }
        Ok(())
    }

    /// Starts [`Self::take_over`] for every browser that has open replays on a registered host that
    /// is gone. Returns of how many browsers.
    pub async fn take_over_from_gone_hosts(&self) -> Result<u64, StoreError> {
        let browsers = self
            .inner
            .store
            .browsers_with_replays_on_gone_hosts()
            .await?;
        let count = browsers.len() as u64;
        for browser in browsers {
            self.take_over(browser);
        }
        Ok(count)
    }

    /// Deletes the recordings of unknown browsers that were left before `before`. Returns of how
    /// many browsers.
    pub(super) async fn delete_unknown(&self, before: DateTime<Utc>) -> Result<u64, ReplayError> {
        let directory = self.inner.orphaned.clone();
        let browsers = run_blocking(move || browsers_in(&directory)).await?;
        let mut count = 0;
        for browser in browsers {
            if self
                .inner
                .store
                .project_of_browser(&browser)
                .await?
                .is_some()
            {
                continue;
            }
            let directory = self.inner.orphaned.join(browser.as_str());
            count += u64::from(run_blocking(move || remove_if_older(&directory, before)).await?);
        }
        Ok(count)
    }

    async fn take_over_once(&self, browser: &BrowserId) -> Result<(), TransferError> {
        let directory = self.inner.orphaned.join(browser.as_str());
        let store = &self.inner.store;
        match store.project_of_browser(browser).await? {
            Some(project) => {
                let recordings = self.recordings_of(&project, browser, &directory).await?;
                self.store_all(&project, browser, &recordings).await?;
            }
            // The database may be older than the recordings, because it was restored from a backup.
            None => {
                let directory = directory.display();
                tracing::error!(%browser, %directory, "kept the recordings of an unknown browser");
                return Ok(());
            }
        }
        self.settle_missing(browser).await?;
        match tokio::fs::remove_dir_all(&directory).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Records the end of the open replays whose files their host does not have. Of those, the blob
    /// store has the ones that were stored after the backup from which the database was restored.
    /// The others are lost.
    pub(super) async fn settle_missing(&self, browser: &BrowserId) -> Result<(), TransferError> {
        for row in self.inner.store.open_replays_of(browser).await? {
            if self.adopt_blob(&row.id).await? {
                tracing::warn!(%browser, replay = %row.id, "replay was stored already");
                continue;
            }
            let reason = row.end.reason;
            tracing::error!(%browser, replay = %row.id, ?reason, "replay lost: the host left no file");
            self.mark_lost(&row.id).await?;
        }
        Ok(())
    }

    /// Reads the recordings that the host left behind, no more than the browser may have.
    async fn recordings_of(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        directory: &Path,
    ) -> Result<Vec<OrphanedRecording>, TransferError> {
        let rows = self.inner.store.replays_of(project, browser).await?;
        let known: HashSet<ReplayId> = rows.into_iter().map(|row| row.id).collect();
        let max_unknown = MAX_REPLAYS_PER_BROWSER.saturating_sub(known.len());
        let directory = directory.to_owned();
        Ok(run_blocking(move || recordings_in(&directory, &known, max_unknown)).await?)
    }

    /// Stores as many recordings as possible, and returns the first error.
    async fn store_all(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recordings: &[OrphanedRecording],
    ) -> Result<(), TransferError> {
        let mut first_error = None;
        let mut own = Vec::new();
        // Rows first, because the files may take long.
        for recording in recordings {
            match self.record_orphan(project, browser, recording).await {
                Ok(true) => own.push(recording),
                Ok(false) => {}
                Err(error) => {
                    first_error.get_or_insert(error.into());
                }
            }
        }
        for recording in own {
            if let Err(error) = self.store_orphan(browser, recording).await {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Updates the row of an orphaned recording, creating it if necessary. Returns false if the
    /// recording belongs to another browser.
    async fn record_orphan(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recording: &OrphanedRecording,
    ) -> Result<bool, StoreError> {
        let (id, started_at) = (&recording.id, recording.started_at);
        let is_own = self.ensure_row(project, browser, id, started_at).await?;
        if is_own {
            let end = |_: &_| recording.end.clone();
            self.apply(id, Event::Ended, end).await?;
        }
        Ok(is_own)
    }

    /// Stores the file of an orphaned recording and removes it at its source.
    async fn store_orphan(
        &self,
        browser: &BrowserId,
        recording: &OrphanedRecording,
    ) -> Result<(), TransferError> {
        let (id, Some(recorded)) = (&recording.id, recording.file.clone()) else {
            return Ok(());
        };
        if self.inner.shutdown.is_requested() {
            return Err(TransferError::ShuttingDown);
        }
        let _permit = self.inner.transfers.acquire().await;
        let _lock = self.inner.locks.lock(id.clone()).await;
        let found = self.inner.store.find_replay(id).await?;
        // Its agent was about to remove it, or clients have put another file in its place.
        if found.is_none_or(|row| row.state == State::Stored) {
            return Ok(());
        }
        let (path, duration_ms) = match recording.is_partial {
            true => finalize(id, &recorded).await,
            false => (recorded.clone(), None),
        };
        let (file, size) = open(path.clone()).await?;
        let content = ReaderStream::with_capacity(file, CHUNK);
        match self.store_file(id, size, content).await {
            Ok(()) => {}
            Err(error @ TransferError::StorageFull(_)) => {
                tracing::error!(%browser, replay = %id, %error, "replay lost");
                return Ok(self.mark_lost(id).await?);
            }
            Err(error) => return Err(error),
        }
        let end = |_: &_| ReplayEnd {
            size_bytes: Some(size),
            duration_ms: duration_ms.or(recording.end.duration_ms),
            ..recording.end.clone()
        };
        self.apply(id, Event::Fetched, end).await?;
        tracing::info!(%browser, replay = %id, size, "orphaned replay stored");
        remove_files(&[recorded, path]).await?;
        Ok(())
    }
}

/// Opens a regular file, and returns it with its size.
async fn open(path: PathBuf) -> io::Result<(tokio::fs::File, u64)> {
    run_blocking(move || {
        let file = open_regular(&path)?;
        let size = file.metadata()?.len();
        Ok((tokio::fs::File::from_std(file), size))
    })
    .await
}

/// Runs a blocking file operation.
async fn run_blocking<T: Send + 'static>(
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(operation).await.map_err(io::Error::other)?
}

async fn remove_files(paths: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        match tokio::fs::remove_file(path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Finalizes the file of a killed agent as the agent would have done. Returns its path and its
/// duration in milliseconds. The file is playable without this, so a failure returns it as it is.
async fn finalize(id: &ReplayId, recorded: &Path) -> (PathBuf, Option<u64>) {
    let draft = recorded.with_file_name(format!("{id}{DRAFT_SUFFIX}"));
    let finalized = recorder::finish(Path::new(FFMPEG), recorded, &draft, FINALIZE_TIMEOUT).await;
    if let Err(error) = finalized {
        tracing::warn!(replay = %id, %error, "cannot finalize recording; storing it as it is");
        return (recorded.to_owned(), None);
    }
    let measured = draft.clone();
    let duration = spawn_blocking(move || recorder::duration(&measured)).await;
    let duration = duration.ok().and_then(Result::ok);
    let millis = duration.and_then(|duration| u64::try_from(duration.as_millis()).ok());
    (draft, millis)
}
