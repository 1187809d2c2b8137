//! Archives of Chromium's profile, and its restoration from one.
//!
//! At most one operation runs at a time: each holds the lock of [`UserData`] until it is done.
//!
//! ```text
//! archive          close Chromium ─► profile ─► spool file ─► client; Chromium restarts as soon as
//!                                               the spool file is complete, or stays closed
//! archive (live)   freeze Chromium ─► copy ─► unfreeze ─► archive of the copy ─► client
//!                  (again if the copy lacks a cookie)
//! restore          client ─► unpack beside the profile ─► close Chromium ─► swap by rename
//! ```
//!
//! - [`copied_cookies`]: the cookies in a copy of a running Chromium's profile.
//! - [`profile_version`]: the version of the Chromium that used a restored profile.
//! - [`session_cookies`]: the session cookies of a restored profile.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, future::Either, stream};
use tempfile::TempDir;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::spawn_blocking,
    time::sleep,
};

mod copied_cookies;
mod profile_version;
mod session_cookies;

use super::{
    chromium::{BrowserState, Chromium, LeaseError, LeaseMode, NotReady},
    session_dir::SessionDir,
};
use crate::{
    api::fs::CompressionLevel,
    shutdown::Shutdown,
    system::{
        files::{
            archive::{
                self, ArchiveFormat, ArchiveSource, OpenSourceError, SkippedEntries,
                unpack::{
                    UNLIMITED_RATIO, UnpackError, UnpackLimits, UploadSender, unpack_tar_zstd,
                    upload_channel,
                },
            },
            remove::remove_or_warn,
        },
        profile::{database::CookieId, is_process_file},
    },
};

/// The time that Chromium may take to be ready, if it is starting, and then to close or freeze.
const HOLD_TIMEOUT: Duration = Duration::from_secs(90);

/// The time in which a change of local storage reaches the disk: a second, and the time of a write.
const LOCAL_STORAGE_WRITE_DELAY: Duration = Duration::from_millis(1500);

/// The most copies of a running Chromium's profile that are made for an archive. About one in a
/// hundred lacks a cookie while a page sets it all the time.
const MAX_COPIES: u32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum UserDataError {
    #[error("the user data is being archived or restored")]
    Busy,
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("the profile is of Chromium {version}, newer than {running}, which runs here")]
    NewerChromium { version: String, running: String },
    #[error("Chromium did not exit cleanly; its profile may be incomplete")]
    UncleanExit,
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub enum RestoreError<E> {
    /// The stream of the archive failed.
    Body(E),
    UserData(UserDataError),
}

impl<E, F: Into<UserDataError>> From<F> for RestoreError<E> {
    fn from(error: F) -> Self {
        RestoreError::UserData(error.into())
    }
}

/// The profile service; clones share its lock.
#[derive(Clone)]
pub struct UserData {
    chromium: Chromium,
    state: SessionDir,
    limits: UnpackLimits,
    shutdown: Shutdown,
    lock: Arc<Mutex<()>>,
}

/// A restoration that has the lock and a directory to unpack to. Dropping it changes nothing.
pub struct Restore {
    user_data: UserData,
    directory: WorkDirectory,
    lock: OwnedMutexGuard<()>,
}

/// A directory that is removed when dropped, which blocks.
struct WorkDirectory(TempDir);

impl WorkDirectory {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // Unpacked directories may have permissions that `TempDir` cannot handle.
        remove_or_warn(self.path());
    }
}

impl UserData {
    pub fn new(
        chromium: Chromium,
        state: SessionDir,
        limits: UnpackLimits,
        shutdown: &Shutdown,
    ) -> Self {
        UserData {
            chromium,
            state,
            limits,
            shutdown: shutdown.clone(),
            lock: Arc::default(),
        }
    }

    /// Archives the profile. Chromium is kept from it in this way until the archive is complete,
    /// however slowly the client reads it, or if it is frozen, until the profile is copied.
    ///
    /// # Errors
    /// If Chromium cannot be closed or frozen, or there is no disk space.
    pub async fn archive(
        &self,
        level: CompressionLevel,
        mode: LeaseMode,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let lock = self.try_lock()?;
        // If the client disconnects, Chromium is released and the copy is removed all the same.
        if mode == LeaseMode::Frozen {
            Ok(Either::Left(self.archive_frozen(level, lock).await?))
        } else {
            Ok(Either::Right(self.archive_closed(level, mode, lock).await?))
        }
    }

    async fn archive_closed(
        &self,
        level: CompressionLevel,
        mode: LeaseMode,
        lock: OwnedMutexGuard<()>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let reason = "its user data is archived";
        let held = self
            .chromium
            .lease_profile(mode, reason, HOLD_TIMEOUT)
            .await?;
        if !held.closed_cleanly {
            return Err(UserDataError::UncleanExit);
        }
        let source = open_source(&self.state.user_data())?;
        let format = ArchiveFormat::TarZstd(level);
        let work = self.state.work();
        let reader = archive::stream_spooled(source, format, &work, move |written| {
            log_failure(written);
            drop((held, lock));
        })?;
        Ok(reader.into_stream())
    }

    async fn archive_frozen(
        &self,
        level: CompressionLevel,
        lock: OwnedMutexGuard<()>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        sleep(LOCAL_STORAGE_WRITE_DELAY).await;
        let mut lock = lock;
        let mut copies = 0;
        let copy = loop {
            let (copy, missing);
            (copy, lock, missing) = self.copy_frozen(lock).await?;
            copies += 1;
            if missing.is_empty() {
                break copy;
            }
            let missing = missing.len();
            if copies == MAX_COPIES {
                // A page may also delete cookies all the time.
                tracing::info!(missing, "the archive lacks cookies that were there before");
                break copy;
            }
            tracing::debug!(
                missing,
                "a copy of the profile lacks cookies, it is made again"
            );
            // It has as many files as the profile.
            spawn_blocking(move || drop(copy))
                .await
                .map_err(io::Error::other)?;
        };
        let source = open_source(copy.path())?;
        let format = ArchiveFormat::TarZstd(level);
        let mut chunks = archive::stream(source, format, move |written| {
            log_failure(written);
            drop((copy, lock));
        })?;
        Ok(stream::poll_fn(move |context| chunks.poll_recv(context)))
    }

    /// Copies the profile while Chromium is frozen. Returns the cookies that Chromium had before,
    /// and the copy lacks.
    async fn copy_frozen(
        &self,
        lock: OwnedMutexGuard<()>,
    ) -> Result<(WorkDirectory, OwnedMutexGuard<()>, Vec<CookieId>), UserDataError> {
        let user_data = self.state.user_data();
        let cookies = self.chromium.cookie_ids().await;
        let cookies = cookies.map_err(LeaseError::from)?.unwrap_or_default();
        // Immediately before Chromium is stopped.
        let flushed = self.chromium.flush_cookies(&user_data).await;
        if !flushed.map_err(LeaseError::from)? {
            tracing::warn!("the archive may lack cookies set within the last 30 s");
        }
        let reason = "its user data is copied";
        let held = self
            .chromium
            .lease_profile(LeaseMode::Frozen, reason, HOLD_TIMEOUT)
            .await?;
        let source = open_source(&user_data)?;
        let (copy, work) = (self.create_directory()?, self.state.work());
        // The blocking task owns the lock and the copy, in case the client disconnects.
        let copying = spawn_blocking(move || {
            let copied = archive::copy(&source, copy.path());
            let was_held = held.is_valid();
            // Before anything slow, such as the removal of an incomplete copy.
            drop(held);
            copied?;
            if !was_held {
                return Err(UserDataError::Lease(NotReady::Stopped.into()));
            }
            let missing = copied_cookies::find_missing(copy.path(), &cookies, &work);
            let missing = missing.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the cookies of a copied profile");
                Vec::new()
            });
            Ok((copy, lock, missing))
        });
        copying.await.map_err(io::Error::other)?
    }

    /// Prepares a restoration.
    ///
    /// # Errors
    /// If the profile is being archived or restored, or there is no disk space.
    pub fn begin_restore(&self) -> Result<Restore, UserDataError> {
        let lock = self.try_lock()?;
        Ok(Restore {
            directory: self.create_directory()?,
            user_data: self.clone(),
            lock,
        })
    }

    /// Rejects the profile of a newer Chromium, with which the one here does not start. A Chromium
    /// that does not answer, perhaps because of its own profile, is not compared.
    async fn check_version(&self, version: String) -> Result<(), UserDataError> {
        if matches!(self.chromium.current(), BrowserState::Starting) {
            // The restoration fails later, if Chromium does not start.
            let _ = self.chromium.ready(HOLD_TIMEOUT).await;
        }
        match self.chromium.current().devtools() {
            Some(devtools) if profile_version::is_newer(&version, &devtools.version.product) => {
                Err(UserDataError::NewerChromium {
                    version,
                    running: devtools.version.product.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    fn try_lock(&self) -> Result<OwnedMutexGuard<()>, UserDataError> {
        let lock = self.lock.clone().try_lock_owned();
        lock.map_err(|_| UserDataError::Busy)
    }

    /// Creates a directory on the profile's file system, so that a rename can swap the two.
    fn create_directory(&self) -> io::Result<WorkDirectory> {
        TempDir::new_in(self.state.work()).map(WorkDirectory)
    }
}

impl Restore {
    /// Unpacks the archive in `chunks`, then replaces Chromium's profile with it. Neither the
    /// profile nor Chromium is touched before the complete archive was received and checked.
    ///
    /// # Errors
    /// If the archive is invalid or incomplete, or Chromium does not release its profile.
    pub async fn run<E>(
        self,
        chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), RestoreError<E>> {
        let new = self.directory.path().join("user-data");
        DirBuilder::new().mode(0o700).create(&new)?;
        let (sender, reader) = upload_channel();
        let shutdown = self.user_data.shutdown.clone();
        let stop = shutdown.token();
        // The blocking task owns the lock and the directory, in case the client disconnects.
        let unpacking = spawn_blocking(move || {
            // A page can make its own profile very compressible, and it must be restorable all the
            // same.
            let limits = UnpackLimits {
                ratio: UNLIMITED_RATIO,
                ..self.user_data.limits
            };
            unpack_tar_zstd(reader, &new, limits, &stop, is_process_file)?;
            if !session_cookies::keep(&new)? {
                tracing::warn!("the restored profile has no preferences that can be changed");
            }
            let version = profile_version::read(&new)?;
            Ok::<_, UserDataError>((self, new, version))
        });
        let forwarded = forward(chunks, sender).await;
        let unpacked = unpacking.await.map_err(io::Error::other)?;
        forwarded.map_err(RestoreError::Body)?;
        let (restore, new, version) = unpacked?;
        if let Some(version) = version {
            restore.user_data.check_version(version).await?;
        }
        // From here on the restoration completes even if the client disconnects.
        let replacing = shutdown.spawn(restore.replace_profile(new));
        Ok(replacing.await.map_err(io::Error::other)??)
    }

    async fn replace_profile(self, new: PathBuf) -> Result<(), UserDataError> {
        let Restore {
            user_data,
            directory,
            lock,
        } = self;
        let reason = "its user data is replaced";
        let held = user_data
            .chromium
            .lease_profile(LeaseMode::Closed, reason, HOLD_TIMEOUT)
            .await?;
        let replacing = spawn_blocking(move || {
            let replaced = user_data.state.replace_user_data(&new);
            drop((held, lock, directory));
            replaced
        });
        Ok(replacing.await.map_err(io::Error::other)??)
    }
}

/// Opens the profile for an archive that must be complete, apart from the files of the process.
fn open_source(directory: &Path) -> io::Result<ArchiveSource> {
    let source = ArchiveSource::open(directory).map_err(|error| match error {
        OpenSourceError::Io(error) => error,
        OpenSourceError::VirtualFileSystem => io::Error::other(error.to_string()),
    })?;
    Ok(source.strict_excluding(is_process_file))
}

/// Forwards the chunks until their end, or until the receiver is gone.
async fn forward<E>(
    mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    sender: UploadSender,
) -> Result<(), E> {
    while let Some(chunk) = chunks.next().await {
        // The unpacking thread reports why it stopped.
        if !sender.send(chunk?).await {
            return Ok(());
        }
    }
    sender.finish().await;
    Ok(())
}

fn log_failure(archived: &io::Result<SkippedEntries>) {
    if let Err(error) = archived {
        tracing::warn!(%error, "user data not archived");
    }
}
