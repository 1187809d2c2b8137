//! Chromium's whole profile, out and in.

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
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    chromium::{Chromium, Hold, HoldError, NotReady, OF_THE_PROCESS},
    state_dir::StateDir,
};
use crate::{
    api::fs::CompressionLevel,
    shutdown::Shutdown,
    system::{
        files::archive::{
            self, ArchiveFormat, OpenSourceError, Skipped, Source,
            unpack::{Limits, UnpackError, UploadSender, unpack_tar_zstd, upload_channel},
        },
        files::remove::remove_or_warn,
    },
};

/// For Chromium to come up, where it is just being started, and to close.
const HOLD_DEADLINE: Duration = Duration::from_secs(90);

#[derive(Debug, thiserror::Error)]
pub enum UserDataError {
    #[error("the user data is being archived or restored")]
    Busy,
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error("Chromium did not close in order, so that its profile may not be whole")]
    UncleanExit,
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub enum RestoreError<E> {
    /// What the archive comes in.
    Body(E),
    UserData(UserDataError),
}

impl<E, F: Into<UserDataError>> From<F> for RestoreError<E> {
    fn from(error: F) -> Self {
        RestoreError::UserData(error.into())
    }
}

/// The profile's archives; clones share the right to make or restore one.
#[derive(Clone)]
pub struct UserData {
    chromium: Chromium,
    state: StateDir,
    limits: Limits,
    shutdown: Shutdown,
    turn: Arc<Mutex<()>>,
}

/// A place to unpack a profile to. Dropped, it never was.
pub struct Restore {
    user_data: UserData,
    folder: WorkFolder,
    turn: OwnedMutexGuard<()>,
}

/// Removed when it is dropped, which blocks.
struct WorkFolder(TempDir);

impl WorkFolder {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What was unpacked may have permissions that are against it.
        remove_or_warn(self.path());
    }
}

impl UserData {
    pub fn new(chromium: Chromium, state: StateDir, limits: Limits, shutdown: &Shutdown) -> Self {
        UserData {
            chromium,
            state,
            limits,
            shutdown: shutdown.clone(),
            turn: Arc::default(),
        }
    }

    /// An archive of the profile. Chromium is closed for as long as it takes to make, however slow it is taken; or, `live`, frozen for as long
    /// as it takes to copy the profile.
    ///
    /// # Errors
    /// Where Chromium cannot be closed or frozen, or there is no room.
    pub async fn archive(
        &self,
        level: CompressionLevel,
        live: bool,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let turn = self.turn()?;
        // Whoever asked may leave: Chromium is let go then as well, and what was copied is removed.
        if live {
            Ok(Either::Left(self.archive_frozen(level, turn).await?))
        } else {
            Ok(Either::Right(self.archive_closed(level, turn).await?))
        }
    }

    async fn archive_closed(
        &self,
        level: CompressionLevel,
        turn: OwnedMutexGuard<()>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let reason = "its user data is archived";
        let held = self
            .chromium
            .hold(Hold::Closed, reason, HOLD_DEADLINE)
            .await?;
        if !held.in_order {
            return Err(UserDataError::UncleanExit);
        }
        let source = self.source(&self.state.user_data())?;
        let format = ArchiveFormat::TarZstd(level);
        let reader = archive::spooled(source, format, &self.state.work(), move |written| {
            tell(written);
            drop((held, turn));
        })?;
        Ok(reader.into_stream())
    }

    async fn archive_frozen(
        &self,
        level: CompressionLevel,
        turn: OwnedMutexGuard<()>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let user_data = self.state.user_data();
        let flushed = self.chromium.flush_cookies(&user_data).await;
        if !flushed.map_err(HoldError::from)? {
            tracing::warn!("cookies set within the last half minute may not be in the archive");
        }
        let reason = "its user data is copied";
        let held = self
            .chromium
            .hold(Hold::Frozen, reason, HOLD_DEADLINE)
            .await?;
        let source = self.source(&user_data)?;
        let copy = self.folder()?;
        // Whoever asked may leave: the turn and the copy stay with who makes it.
        let copying = tokio::task::spawn_blocking(move || {
            let copied = archive::copy(&source, copy.path());
            let was_held = held.holds();
            // Before anything else that takes time, such as the removal of half a copy.
            drop(held);
            copied?;
            match was_held {
                true => Ok((copy, turn)),
                false => Err(UserDataError::Hold(NotReady::Stopped.into())),
            }
        });
        let (copy, turn) = copying.await.map_err(io::Error::other)??;
        let source = self.source(copy.path())?;
        let mut chunks = archive::stream(source, ArchiveFormat::TarZstd(level), move |written| {
            tell(written);
            drop((copy, turn));
        })?;
        Ok(stream::poll_fn(move |context| chunks.poll_recv(context)))
    }

    /// Makes ready for a profile to be unpacked.
    ///
    /// # Errors
    /// Where the profile is being archived or restored, or there is no room.
    pub fn begin_restore(&self) -> Result<Restore, UserDataError> {
        let turn = self.turn()?;
        Ok(Restore {
            folder: self.folder()?,
            user_data: self.clone(),
            turn,
        })
    }

    fn turn(&self) -> Result<OwnedMutexGuard<()>, UserDataError> {
        let turn = self.turn.clone().try_lock_owned();
        turn.map_err(|_| UserDataError::Busy)
    }

    /// On the profile's own file system, so that one can take the other's place.
    fn folder(&self) -> io::Result<WorkFolder> {
        TempDir::new_in(self.state.work()).map(WorkFolder)
    }

    fn source(&self, folder: &Path) -> io::Result<Source> {
        let source = Source::open(folder).map_err(|error| match error {
            OpenSourceError::Io(error) => error,
            OpenSourceError::Virtual => io::Error::other(error.to_string()),
        })?;
        Ok(source.strict_excluding(is_of_the_process))
    }
}

impl Restore {
    /// Unpacks the archive that `chunks` are of, then puts it in the place of Chromium's profile. Nothing happens to that, nor to Chromium, before
    /// all of the archive has come and was found good.
    ///
    /// # Errors
    /// Where the archive is bad or does not come whole, or Chromium does not let go of its profile.
    pub async fn run<E>(
        self,
        chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), RestoreError<E>> {
        let new = self.folder.path().join("user-data");
        DirBuilder::new().mode(0o700).create(&new)?;
        let (sender, reader) = upload_channel();
        let shutdown = self.user_data.shutdown.clone();
        let stop = shutdown.token();
        // Whoever sends may leave: the turn and the folder stay with who unpacks.
        let unpacking = tokio::task::spawn_blocking(move || {
            let limits = self.user_data.limits;
            unpack_tar_zstd(reader, &new, limits, &stop, is_of_the_process)?;
            Ok::<_, UserDataError>((self, new))
        });
        let fed = feed(sender, chunks).await;
        let unpacked = unpacking.await.map_err(io::Error::other)?;
        fed.map_err(RestoreError::Body)?;
        let (restore, new) = unpacked?;
        // From here on the exchange is brought to its end.
        let exchanging = shutdown.spawn(restore.exchange(new));
        Ok(exchanging.await.map_err(io::Error::other)??)
    }

    async fn exchange(self, new: PathBuf) -> Result<(), UserDataError> {
        let Restore {
            user_data,
            folder,
            turn,
        } = self;
        let reason = "its user data is replaced";
        let held = user_data
            .chromium
            .hold(Hold::Closed, reason, HOLD_DEADLINE)
            .await?;
        let exchanging = tokio::task::spawn_blocking(move || {
            let replaced = user_data.state.replace_user_data(&new);
            drop((held, turn, folder));
            replaced
        });
        Ok(exchanging.await.map_err(io::Error::other)??)
    }
}

/// Passes on what comes, until its end or until nobody wants more.
async fn feed<E>(
    sender: UploadSender,
    mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<(), E> {
    while let Some(chunk) = chunks.next().await {
        // Where nobody wants more, that one knows why.
        if !sender.send(chunk?).await {
            return Ok(());
        }
    }
    sender.end().await;
    Ok(())
}

fn tell(archived: &io::Result<Skipped>) {
    if let Err(error) = archived {
        tracing::warn!(%error, "the user data could not be archived");
    }
}

fn is_of_the_process(path: &Path) -> bool {
    OF_THE_PROCESS.iter().any(|name| path == Path::new(name))
}
