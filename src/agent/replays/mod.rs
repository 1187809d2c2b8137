//! Recordings of the screen: made, kept, and handed out.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{
    chromium::{Chromium, NoScreen},
    cursor::CursorShown,
};
use crate::{
    api::{
        ids::ReplayId,
        replays::{Replay, ReplayEndReason, ReplayRequest, ReplayStatus},
    },
    shutdown::Shutdown,
    system::{
        media::recorder::{self, Camera, Scene, Sound},
        media::sound,
        x11::screen::ScreenError,
    },
};

mod files;
mod finishing;
mod recording;

use files::Files;
use recording::{Bounds, Recording};

/// Recordings at once.
pub const MAX_RECORDING: usize = 2;
/// Recordings that are kept.
const MAX_KEPT: usize = 1000;

#[derive(Clone, Debug)]
pub struct Options {
    pub folder: PathBuf,
    /// ffmpeg, where it was found.
    pub encoder: Option<PathBuf>,
    pub pulse_server: Option<String>,
    /// How long a recording lasts at most that does not say so itself.
    pub max_duration: Duration,
    /// What one may take.
    pub max_bytes: u64,
    /// What there may be of others for one to be started.
    pub total_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("there is no ffmpeg to record with")]
    NoEncoder,
    #[error("there is no sound server to record from")]
    NoAudio,
    #[error("{MAX_RECORDING} recordings are being made")]
    Busy,
    #[error("the recordings that are kept leave no room for another one")]
    Full,
    #[error("the agent is being stopped")]
    Stopping,
    #[error("the screen cannot be recorded: {0}")]
    Screen(#[from] ScreenError),
    #[error("no recording can be made: {0}")]
    Io(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is no such replay")]
    NotFound,
    #[error("it is being recorded")]
    Recording,
    #[error("nothing of it was recorded")]
    Empty,
    #[error("its recording was given up: {0}")]
    GivenUp(String),
    #[error(transparent)]
    Io(io::Error),
}

/// Clones share the recordings.
#[derive(Clone)]
pub struct Replays(Arc<Inner>);

struct Inner {
    options: Options,
    files: Files,
    chromium: Chromium,
    cursor: CursorShown,
    shutdown: Shutdown,
    turns: Arc<Semaphore>,
    entries: Mutex<BTreeMap<ReplayId, Entry>>,
}

/// A recording as others see it; who makes it owns the other end.
struct Entry {
    replay: watch::Receiver<Replay>,
    stop: CancellationToken,
}

impl Replays {
    /// Knows what earlier agents have recorded, and finishes what they could not. Blocks for as long as it takes to look.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn start(
        options: Options,
        chromium: Chromium,
        cursor: CursorShown,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let files = Files::new(options.folder.clone());
        let known = files.known()?;
        let replays = Self(Arc::new(Inner {
            options,
            files,
            chromium,
            cursor,
            shutdown: shutdown.clone(),
            turns: Arc::new(Semaphore::new(MAX_RECORDING)),
            entries: Mutex::default(),
        }));
        let mut left = Vec::new();
        for replay in known {
            let unfinished = replay.status == ReplayStatus::Recording;
            let (state, _) = replays.enter(replay);
            if unfinished {
                left.push(state);
            }
        }
        let recovering = replays.clone();
        shutdown.spawn(async move {
            for state in left {
                recovering.0.recover(state).await;
            }
        });
        Ok(replays)
    }

    /// All there are, in the order in which they were started.
    pub fn list(&self) -> Vec<Replay> {
        let entries = self.0.entries();
        entries
            .values()
            .map(|entry| entry.replay.borrow().clone())
            .collect()
    }

    /// Begins to record. It is brought to its end although whoever asked leaves.
    ///
    /// # Errors
    /// Where there is nothing to record, or no room.
    pub async fn record(&self, request: ReplayRequest) -> Result<Replay, StartError> {
        let replays = self.clone();
        let starting = self
            .0
            .shutdown
            .spawn(async move { replays.begin(request).await });
        starting.await.map_err(io::Error::other)?
    }

    async fn begin(&self, request: ReplayRequest) -> Result<Replay, StartError> {
        let Inner {
            options,
            files,
            chromium,
            cursor,
            shutdown,
            turns,
            ..
        } = &*self.0;
        if shutdown.stopping() {
            return Err(StartError::Stopping);
        }
        let access = chromium.screen()?;
        let program = options.encoder.clone().ok_or(StartError::NoEncoder)?;
        let pulse_server = match &options.pulse_server {
            _ if !request.record_audio => None,
            Some(server) if sound::answers(server).await => Some(server.as_str()),
            _ => return Err(StartError::NoAudio),
        };
        let turn = turns.clone().try_acquire_owned();
        let turn = turn.map_err(|_| StartError::Busy)?;
        if !self.0.has_room() {
            return Err(StartError::Full);
        }
        let scene = Scene {
            framerate: request.framerate.0,
            cursor: {
                let cursor = cursor.clone();
                Box::new(move || cursor.get())
            },
            access: {
                let chromium = chromium.clone();
                Box::new(move || chromium.screen().ok())
            },
        };
        let opening = tokio::task::spawn_blocking(move || Camera::open(scene, &access));
        let camera = opening.await.map_err(io::Error::other)??;

        let (begun, now) = (Instant::now(), Utc::now());
        let replay = Replay::begun(ReplayId::generate(), now.into());
        let id = replay.replay_id.clone();
        let encoder = recorder::Options {
            program: &program,
            size: camera.size(),
            sound: pulse_server.map(|server| Sound { server, begun: now }),
            output: files.part(&id),
        };
        let beginning = async {
            files.note(&replay)?;
            let (child, feed) = recorder::start(encoder).await?;
            let max_duration = match request.max_duration_in_seconds {
                Some(seconds) => Duration::from_secs(seconds.0.into()),
                None => options.max_duration,
            };
            let bounds = Bounds {
                duration: max_duration,
                bytes: options.max_bytes,
            };
            Recording::begin(camera, child, feed, bounds, files.part(&id), begun)
        };
        let recording = match beginning.await {
            Ok(recording) => recording,
            Err(error) => {
                let _ = files.remove(&id);
                return Err(error.into());
            }
        };
        tracing::info!(replay = %id, framerate = request.framerate.0, "recording");
        let (state, stop) = self.enter(replay.clone());
        let inner = self.0.clone();
        shutdown.spawn(async move {
            let reason = recording.run(&stop, &inner.shutdown).await;
            inner.end(state, reason, None).await;
            drop(turn);
        });
        Ok(replay)
    }

    /// Ends a recording and waits until it can be played; one that has ended is told as it is.
    ///
    /// # Errors
    /// Where there is none.
    pub async fn stop(&self, id: &ReplayId) -> Result<Replay, ReplayError> {
        let mut replay = {
            let entries = self.0.entries();
            let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
            entry.stop.cancel();
            entry.replay.clone()
        };
        let finished = replay.wait_for(|replay| replay.status == ReplayStatus::Finished);
        match finished.await {
            Ok(replay) => Ok(replay.clone()),
            Err(error) => Err(ReplayError::GivenUp(error.to_string())),
        }
    }

    /// A finished recording's file, and its length. Blocks.
    ///
    /// # Errors
    /// Where there is none, or not yet.
    pub fn open(&self, id: &ReplayId) -> Result<(File, u64), ReplayError> {
        self.0.finished(id)?;
        self.0.files.open(id).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReplayError::Empty,
            _ => ReplayError::Io(error),
        })
    }

    /// Deletes a finished recording. Blocks.
    ///
    /// # Errors
    /// Where there is none, or it is being recorded.
    pub fn delete(&self, id: &ReplayId) -> Result<(), ReplayError> {
        self.0.finished(id)?;
        self.0.files.remove(id).map_err(ReplayError::Io)?;
        self.0.entries().remove(id);
        Ok(())
    }

    fn enter(&self, replay: Replay) -> (watch::Sender<Replay>, CancellationToken) {
        let id = replay.replay_id.clone();
        let (state, receiver) = watch::channel(replay);
        let stop = CancellationToken::new();
        let entry = Entry {
            replay: receiver,
            stop: stop.clone(),
        };
        self.0.entries().insert(id, entry);
        (state, stop)
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<ReplayId, Entry>> {
        self.entries
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn has_room(&self) -> bool {
        let entries = self.entries();
        let kept = entries
            .values()
            .map(|entry| entry.replay.borrow().size_bytes);
        entries.len() < MAX_KEPT && kept.flatten().sum::<u64>() < self.options.total_bytes
    }

    fn finished(&self, id: &ReplayId) -> Result<(), ReplayError> {
        let entries = self.entries();
        let entry = entries.get(id).ok_or(ReplayError::NotFound)?;
        match entry.replay.borrow().status {
            ReplayStatus::Recording => Err(ReplayError::Recording),
            ReplayStatus::Finished => Ok(()),
        }
    }

    /// What an agent that was killed has left of a recording.
    async fn recover(&self, state: watch::Sender<Replay>) {
        let id = state.borrow().replay_id.clone();
        // Only the whole is there where the agent had but to note its end.
        let mut last = None;
        for path in [self.files.part(&id), self.files.whole(&id)] {
            if let Ok(written) = tokio::fs::metadata(path).await {
                last = written.modified().ok();
                break;
            }
        }
        tracing::warn!(replay = %id, "a recording that its agent did not end is finished");
        self.end(state, ReplayEndReason::AgentEnded, last.map(DateTime::from))
            .await;
    }

    /// Makes it one to be played, and tells so.
    async fn end(
        &self,
        state: watch::Sender<Replay>,
        reason: ReplayEndReason,
        ended: Option<DateTime<Utc>>,
    ) {
        let mut replay = state.borrow().clone();
        let id = replay.replay_id.clone();
        let ended = ended.unwrap_or_else(Utc::now).max(replay.started_at.0);
        let finished = finishing::finish(
            &self.files,
            &id,
            self.options.encoder.as_deref(),
            &self.shutdown,
        )
        .await;
        let spanned = (ended - replay.started_at.0).num_milliseconds();
        replay.status = ReplayStatus::Finished;
        replay.finished_at = Some(ended.into());
        replay.end_reason = Some(reason);
        replay.size_bytes = finished.bytes;
        replay.duration_ms = match finished {
            finishing::Finished { bytes: Some(0), .. } => Some(0),
            finishing::Finished { duration, .. } => duration
                .map_or(u64::try_from(spanned).ok(), |length| {
                    u64::try_from(length.as_millis()).ok()
                }),
        };
        tracing::info!(
            replay = %id,
            ?reason,
            duration_ms = replay.duration_ms,
            size_bytes = finished.bytes,
            "recorded"
        );
        let (files, noted) = (self.files.clone(), replay.clone());
        let noting = tokio::task::spawn_blocking(move || files.note(&noted));
        // The next agent finds it as one that was not ended, and does all this again.
        if let Err(error) = noting.await.map_err(io::Error::other).flatten() {
            tracing::error!(replay = %id, %error, "the end of a recording could not be noted");
        }
        state.send_replace(replay);
    }
}
