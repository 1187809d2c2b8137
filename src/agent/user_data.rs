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
    chromium::{Chromium, Hold, HoldError},
    state_dir::StateDir,
};
use crate::{
    shutdown::Shutdown,
    system::archive::{
        self, Format, Level, OpenError, Source,
        unpack::{Inlet, Limits, UnpackError, inlet, unpack_tar_zstd},
    },
};

/// For Chromium to come up, where it is just being started, and to close.
const HOLD_DEADLINE: Duration = Duration::from_secs(90);

/// Of a running Chromium alone, and of no use to another one.
const OF_THE_PROCESS: [&str; 4] = [
    "SingletonLock",
    "SingletonCookie",
    "SingletonSocket",
    "DevToolsActivePort",
];

#[derive(Debug, thiserror::Error)]
pub enum UserDataError {
    #[error("the user data is being archived or restored")]
    Busy,
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error("Chromium did not close in order, so that its profile may not be whole")]
    NotInOrder,
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Io(#[from] io::Error),
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
    folder: TempDir,
    turn: OwnedMutexGuard<()>,
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
        level: Level,
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
        level: Level,
        turn: OwnedMutexGuard<()>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, UserDataError> {
        let reason = "its user data is archived";
        let held = self
            .chromium
            .hold(Hold::Closed, reason, HOLD_DEADLINE)
            .await?;
        if !held.in_order {
            return Err(UserDataError::NotInOrder);
        }
        let source = self.source(&self.state.user_data())?;
        let format = Format::TarZstd(level);
        let reader = archive::spooled(source, format, &self.state.work(), move |written| {
            if let Err(error) = written {
                tracing::warn!(%error, "the user data could not be archived");
            }
            drop((held, turn));
        })?;
        Ok(reader.into_stream())
    }

    async fn archive_frozen(
        &self,
        level: Level,
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
        let copying = tokio::task::spawn_blocking(move || {
            let copied = archive::copy(&source, copy.path());
            drop(held);
            copied.map(|_| copy)
        });
        let copy = copying.await.map_err(io::Error::other)??;
        let source = self.source(copy.path())?;
        let mut chunks = archive::stream(source, Format::TarZstd(level), move |_| {
            drop((copy, turn));
        })?;
        Ok(stream::poll_fn(move |context| chunks.poll_recv(context)))
    }

    /// Makes ready for a profile to be unpacked.
    ///
    /// # Errors
    /// Where the profile is being archived or restored, or there is no room.
    pub fn restore(&self) -> Result<Restore, UserDataError> {
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
    fn folder(&self) -> io::Result<TempDir> {
        TempDir::new_in(self.state.work())
    }

    fn source(&self, folder: &Path) -> io::Result<Source> {
        let source = Source::open(folder).map_err(|error| match error {
            OpenError::Io(error) => error,
            OpenError::Virtual => io::Error::other(error.to_string()),
        })?;
        Ok(source.as_it_is_without(is_of_the_process))
    }
}

impl Restore {
    /// Unpacks the archive that `chunks` are of, then puts it in the place of Chromium's profile. Nothing happens to that, nor to Chromium, before
    /// all of the archive has come and was found good.
    ///
    /// # Errors
    /// Where the archive is bad, or Chromium does not let go of its profile.
    pub async fn from(
        self,
        mut chunks: impl Stream<Item = Result<Bytes, impl std::error::Error>> + Unpin,
    ) -> Result<(), UserDataError> {
        let new = self.folder.path().join("user-data");
        DirBuilder::new().mode(0o700).create(&new)?;
        let (inlet, reader) = inlet();
        let (into, limits) = (new.clone(), self.user_data.limits);
        let stop = self.user_data.shutdown.token();
        let unpacking = tokio::task::spawn_blocking(move || {
            unpack_tar_zstd(reader, &into, limits, &stop, is_of_the_process)
        });
        feed(inlet, &mut chunks).await;
        unpacking.await.map_err(io::Error::other)??;
        // Whoever asked may leave: the exchange is brought to its end.
        let shutdown = self.user_data.shutdown.clone();
        let exchanging = shutdown.spawn(self.exchange(new));
        exchanging.await.map_err(io::Error::other)?
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
async fn feed(
    inlet: Inlet,
    chunks: &mut (impl Stream<Item = Result<Bytes, impl std::error::Error>> + Unpin),
) {
    while let Some(chunk) = chunks.next().await {
        // Without its end it broke off, and where nobody wants more, that one knows why.
        let Ok(chunk) = chunk else { return };
        if !inlet.send(chunk).await {
            return;
        }
    }
    inlet.end().await;
}

fn is_of_the_process(path: &Path) -> bool {
    OF_THE_PROCESS.iter().any(|name| path == Path::new(name))
}
