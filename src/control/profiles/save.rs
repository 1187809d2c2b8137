//! Saves browsers and uploads as new versions.
//!
//! Nothing is visible before the last step. An archive that is stored but not published is removed.

use std::{
    io::{self, BufReader},
    time::{Duration, Instant},
};

use bytes::Bytes;
use chrono::Utc;
use futures::{Stream, TryStreamExt};
use sha2::{Digest, Sha256};
use tokio::{sync::SemaphorePermit, task::spawn_blocking, time::timeout};
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{
    ArchiveSourceError, ProfileError, Profiles, blob_key,
    inspection::{InspectLimits, Inspection},
    new_blob,
    operation::Operation,
    receive::{Inspecting, transfer_timeout},
    spool::{SpooledArchive, hex},
};
use crate::{
    api::{
        ids::{BrowserId, ProfileId, ProjectId},
        profiles::{ArchiveContent, ProfileReceipt},
    },
    control::{
        blobs::{PutError, PutLimits},
        fleet::Lease,
        store::{BeginSave, NewProfileVersion, ProfileSave, PublishedVersion, SaveSource},
    },
    request_scope::inherit,
};

/// The longest wait of an upload that was received for others that are being stored.
const UPLOAD_WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The bytes that are read from a file at once.
const CHUNK: usize = 256 << 10;

/// A way to save a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserSave {
    /// The browser is copied while it runs, and goes on.
    Live,
    /// Chromium is closed first, which writes all that it holds in memory, and stays closed.
    Closed,
    /// As [`Self::Closed`], but the version replaces that of the health check before.
    HealthCheck,
}

/// A save that is in progress.
pub(super) struct PendingSave {
    save: ProfileSave,
    operation: Operation,
    pub(super) limits: InspectLimits,
}

/// The save of an ending browser. Each of its steps may be attempted several times: the browser is
/// archived until its archive was received, which is then stored.
pub struct EndingSave<'a> {
    profiles: Profiles,
    profile: &'a ProfileId,
    browser: &'a BrowserId,
    lease: &'a Lease,
    archive: Option<SpooledArchive>,
    /// The save that has received the archive, with its inspection, until it is stored.
    received: Option<(PendingSave, Inspecting)>,
    /// When the current attempt began.
    started: Instant,
}

impl PendingSave {
    /// Returns the save with what was a success. A failure ends it.
    pub(super) async fn unless_failed<T, E>(
        self,
        result: Result<T, E>,
    ) -> Result<(PendingSave, T), ProfileError>
    where
        ProfileError: From<E>,
    {
        match result {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                self.operation.end().await;
                Err(error.into())
            }
        }
    }
}

impl EndingSave<'_> {
    /// Returns whether the archive was received, so that the browser is not needed any more.
    pub fn has_archive(&self) -> bool {
        self.archive.is_some()
    }

    /// Closes and archives the browser. The caller holds a [`Profiles::ending_save_permit`].
    pub async fn receive(&mut self) -> Result<(), ProfileError> {
        self.started = Instant::now();
        match self.try_receive().await {
            Ok(()) => Ok(()),
            failed => observe(failed, self.started),
        }
    }

    async fn try_receive(&mut self) -> Result<(), ProfileError> {
        let pending = self.begin().await?;
        let content = archive(self.lease, false).await?;
        let received = self.profiles.receive_and_inspect(pending, content);
        let (pending, archive, inspecting) = received.await?;
        self.archive = Some(archive);
        self.received = Some((pending, inspecting));
        Ok(())
    }

    /// Stores and publishes the archive that was received. The caller holds a
    /// [`Profiles::ending_save_permit`].
    pub async fn store(&mut self) -> Result<ProfileReceipt, ProfileError> {
        if self.received.is_none() {
            self.started = Instant::now();
        }
        observe(self.try_store().await, self.started)
    }

    async fn try_store(&mut self) -> Result<ProfileReceipt, ProfileError> {
        let archive = self.archive.clone().ok_or(ProfileError::Empty)?;
        let (pending, inspecting) = match self.received.take() {
            Some(received) => received,
            None => {
                let pending = self.begin().await?;
                let inspecting = self.profiles.inspect(archive.reader(), pending.limits);
                (pending, inspecting)
            }
        };
        let storing = self
            .profiles
            .store_in_background(pending, archive, inspecting);
        storing.await
    }

    /// Returns how long it may take to store the archive that was received, and to read it again.
    pub fn storing_timeout(&self) -> Duration {
        let size = self.archive.as_ref().map_or(0, |archive| archive.size);
        2 * transfer_timeout(size)
    }

    async fn begin(&self) -> Result<PendingSave, ProfileError> {
        let source = SaveSource::EndingBrowser(self.browser);
        self.profiles.begin(self.profile, source).await
    }
}

/// Returns the archive of a browser, of the running one if `live` is set.
async fn archive(
    lease: &Lease,
    live: bool,
) -> Result<impl Stream<Item = Result<Bytes, ArchiveSourceError>>, ProfileError> {
    let archive = lease.archive_user_data(live).await;
    let archive = archive.map_err(ArchiveSourceError::from)?;
    Ok(archive.map_err(ArchiveSourceError::from))
}

impl Profiles {
    /// Saves a browser as a new version of a profile.
    pub async fn save_browser(
        &self,
        profile: &ProfileId,
        browser: &BrowserId,
        lease: &Lease,
        kind: BrowserSave,
    ) -> Result<ProfileReceipt, ProfileError> {
        let started = Instant::now();
        let live = kind == BrowserSave::Live;
        let source = match kind {
            BrowserSave::Live | BrowserSave::Closed => SaveSource::Browser(browser),
            BrowserSave::HealthCheck => SaveSource::HealthCheck(browser),
        };
        let pending = self.begin(profile, source).await?;
        let permits = match live {
            true => &self.inner.live_saves,
            false => &self.inner.ending_saves,
        };
        let saving = async {
            let _permit = permits.acquire().await;
            self.save_now(pending, lease, live).await
        };
        observe(self.unless_stopping(saving).await, started)
    }

    /// Waits until another ending browser may be saved.
    pub async fn ending_save_permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.inner.ending_saves.acquire().await.ok()
    }

    /// Returns the save of a browser that ends as a new version of the profile that it has the
    /// exclusive right to save.
    pub fn save_ending_browser<'a>(
        &self,
        profile: &'a ProfileId,
        browser: &'a BrowserId,
        lease: &'a Lease,
    ) -> EndingSave<'a> {
        EndingSave {
            profiles: self.clone(),
            profile,
            browser,
            lease,
            archive: None,
            received: None,
            started: Instant::now(),
        }
    }

    /// Rejects an archive of which a client announces more bytes than one may have.
    pub fn check_length(&self, bytes: Option<u64>) -> Result<(), ProfileError> {
        let limit = self.inner.limits.archive_bytes;
        match bytes {
            Some(bytes) if bytes > limit => Err(ProfileError::TooLarge(limit)),
            _ => Ok(()),
        }
    }

    /// Saves an archive from a client as a new version of a profile, unless it is of a newer
    /// Chromium than `newest_chromium`, a major version. Once it is received, this completes even
    /// if the client disconnects.
    pub async fn upload(
        &self,
        project: &ProjectId,
        profile: &ProfileId,
        content: impl Stream<Item = Result<Bytes, ArchiveSourceError>>,
        newest_chromium: Option<u32>,
    ) -> Result<ProfileReceipt, ProfileError> {
        let started = Instant::now();
        let spool_permit = self.inner.upload_spools.try_acquire(project);
        let spool_permit = spool_permit.ok_or(ProfileError::Busy("uploads of profiles"))?;
        let mut pending = self.begin(profile, SaveSource::Upload).await?;
        pending.limits.newest_chromium = newest_chromium;
        let saving = async {
            let (pending, archive) = self.receive_upload(pending, content).await?;
            let this = self.clone();
            let task = async move {
                let _spool_permit = spool_permit;
                this.store_upload(pending, archive).await
            };
            let saved = self.inner.shutdown.spawn(inherit(task)).await;
            saved.map_err(ProfileError::from).flatten()
        };
        observe(self.unless_stopping(saving).await, started)
    }

    async fn save_now(
        &self,
        pending: PendingSave,
        lease: &Lease,
        live: bool,
    ) -> Result<ProfileReceipt, ProfileError> {
        let content = archive(lease, live).await?;
        let (pending, archive, inspecting) = self.receive_and_inspect(pending, content).await?;
        self.store_in_background(pending, archive, inspecting).await
    }

    /// Runs a save until the server shuts down.
    async fn unless_stopping<T>(
        &self,
        saving: impl Future<Output = Result<T, ProfileError>>,
    ) -> Result<T, ProfileError> {
        tokio::select! {
            saved = saving => saved,
            () = self.inner.shutdown.requested() => Err(ProfileError::ShuttingDown),
        }
    }

    pub(super) async fn begin(
        &self,
        profile: &ProfileId,
        source: SaveSource<'_>,
    ) -> Result<PendingSave, ProfileError> {
        let operation = self.new_operation();
        let id = operation.id().to_owned();
        let store = &self.inner.store;
        let begun = store.begin_profile_save(id, profile, source, Utc::now());
        let save = match begun.await? {
            BeginSave::Started(save) => save,
            BeginSave::NotFound => {
                operation.set_ended();
                return Err(ProfileError::NotFound);
            }
            BeginSave::InUse => {
                operation.set_ended();
                return Err(ProfileError::InUse);
            }
        };
        let limits = match source {
            SaveSource::Upload => InspectLimits::UPLOAD,
            SaveSource::Browser(_) | SaveSource::EndingBrowser(_) | SaveSource::HealthCheck(_) => {
                InspectLimits::BROWSER
            }
        };
        Ok(PendingSave {
            save,
            operation,
            limits,
        })
    }

    /// Stores and publishes an archive, even if the caller goes away.
    pub(super) async fn store_in_background(
        &self,
        pending: PendingSave,
        archive: SpooledArchive,
        inspecting: Inspecting,
    ) -> Result<ProfileReceipt, ProfileError> {
        let this = self.clone();
        let task = async move { this.store_archive(pending, archive, inspecting).await };
        let saved = self.inner.shutdown.spawn(inherit(task)).await;
        saved.map_err(ProfileError::from).flatten()
    }

    /// Stores and publishes an upload, when few enough are.
    async fn store_upload(
        &self,
        pending: PendingSave,
        archive: SpooledArchive,
    ) -> Result<ProfileReceipt, ProfileError> {
        let (pending, _permit) = pending.unless_failed(self.upload_permit().await).await?;
        let inspecting = self.inspect(archive.reader(), pending.limits);
        self.store_archive(pending, archive, inspecting).await
    }

    async fn upload_permit(&self) -> Result<SemaphorePermit<'_>, ProfileError> {
        let permit = timeout(UPLOAD_WAIT_TIMEOUT, self.inner.uploads.acquire());
        match self.unless_stopping(async { Ok(permit.await) }).await? {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(ProfileError::Busy("uploads of profiles")),
        }
    }

    /// Stores an archive that can be used, reads it again, and publishes it.
    async fn store_archive(
        &self,
        pending: PendingSave,
        archive: SpooledArchive,
        inspecting: Inspecting,
    ) -> Result<ProfileReceipt, ProfileError> {
        let (pending, inspection) = match inspecting.await {
            Ok(inspected) => pending.unless_failed(inspected).await?,
            Err(panic) => pending.unless_failed(Err(panic)).await?,
        };
        let PendingSave {
            save, operation, ..
        } = pending;
        let (size, blob) = (archive.size, new_blob(&archive.digest));
        let published = self
            .try_store_archive(&save, &blob, archive, inspection)
            .await;
        match published {
            Ok((published, content)) => {
                operation.set_ended();
                self.remove_in_background(published.retired_blobs);
                let (profile, version) = (save.profile_id, published.number);
                tracing::info!(%profile, version, size, "profile saved");
                Ok(ProfileReceipt {
                    profile_id: profile,
                    version,
                    size_bytes: size,
                    content,
                })
            }
            Err(error) => {
                operation.end().await;
                self.remove_in_background(vec![blob]);
                Err(error)
            }
        }
    }

    async fn try_store_archive(
        &self,
        save: &ProfileSave,
        blob: &str,
        archive: SpooledArchive,
        inspection: Inspection,
    ) -> Result<(PublishedVersion, ArchiveContent), ProfileError> {
        let Self { inner } = self;
        let SpooledArchive {
            file, size, digest, ..
        } = archive;
        if !inner.store.set_save_blob(save, blob).await? {
            return Err(ProfileError::Superseded);
        }
        let limits = PutLimits {
            bytes: size,
            time: transfer_timeout(size),
        };
        let stored = inner.blobs.put_file(&blob_key(blob), file, limits).await;
        stored.map_err(put_error)?;
        self.verify_stored(blob, digest, size).await?;
        let new = NewProfileVersion {
            blob: blob.to_owned(),
            size_bytes: size,
            content: ArchiveContent {
                cookies: inspection.cookies,
                origins: inspection.origins,
                skipped: inspection.skipped,
            },
            chromium_version: inspection.chromium_version,
        };
        let content = new.content.clone();
        Ok((self.publish(save, new).await?, content))
    }

    /// Reads a stored archive to its end, and checks that it is the one that was inspected.
    async fn verify_stored(
        &self,
        blob: &str,
        digest: String,
        size: u64,
    ) -> Result<(), ProfileError> {
        let stored = self.inner.blobs.get(&blob_key(blob), 0..size).await?;
        let stored = SyncIoBridge::new(StreamReader::new(stored));
        let mut stored = BufReader::with_capacity(CHUNK, stored);
        let verifying = spawn_blocking(move || {
            let mut hasher = Sha256::new();
            io::copy(&mut stored, &mut hasher)?;
            match hex(&hasher.finalize()) == digest {
                true => Ok(()),
                false => Err(ProfileError::Corrupt),
            }
        });
        verifying.await?
    }

    async fn publish(
        &self,
        save: &ProfileSave,
        new: NewProfileVersion,
    ) -> Result<PublishedVersion, ProfileError> {
        let Self { inner } = self;
        let (store, kept) = (&inner.store, inner.limits.versions);
        let (blob, number) = (new.blob.clone(), save.base_version + 1);
        let error = match store
            .publish_profile_version(save, new, kept, Utc::now())
            .await
        {
            Ok(published) => return published.ok_or(ProfileError::Superseded),
            Err(error) => error,
        };
        // The answer of the database may have been lost.
        let found = store.find_profile_version(&save.profile_id, number).await;
        match found {
            Ok(Some(version)) if version.blob == blob => Ok(PublishedVersion {
                number,
                retired_blobs: Vec::new(),
            }),
            _ => Err(error.into()),
        }
    }
}

/// Counts a save, or an attempt.
fn observe<T>(saved: Result<T, ProfileError>, started: Instant) -> Result<T, ProfileError> {
    let outcome = if saved.is_ok() { "saved" } else { "failed" };
    metrics::counter!("berth_profile_saves_total", "outcome" => outcome).increment(1);
    metrics::histogram!("berth_profile_save_seconds").record(started.elapsed());
    saved
}

fn put_error(error: PutError<io::Error>) -> ProfileError {
    match error {
        PutError::Blob(error) => error.into(),
        PutError::Source(error) => error.into(),
        PutError::TooLong(bytes) => ProfileError::TooLarge(bytes),
        PutError::Timeout(time) => ProfileError::Timeout(time),
    }
}
