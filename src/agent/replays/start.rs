//! Starts a recording.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use chrono::Utc;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    Replays, StartReplayError,
    recording::{Recording, RecordingLimits},
};
use crate::{
    api::{
        ids::ReplayId,
        replays::{Replay, ReplayRequest},
    },
    system::{
        media::{
            recorder::{self, AudioSource, CaptureOptions, EncoderOptions, ScreenCapture},
            sound,
        },
        x11::server::DisplayAccess,
    },
};

/// Everything that a recording needs and that may be missing.
struct Prerequisites {
    access: DisplayAccess,
    encoder: PathBuf,
    /// `None` if no audio is recorded.
    pulse_server: Option<String>,
    permit: OwnedSemaphorePermit,
}

impl Replays {
    /// Starts a recording. It is started completely even if the returned future is dropped.
    ///
    /// # Errors
    /// If there is nothing to record or no room for a recording.
    pub async fn record(&self, request: ReplayRequest) -> Result<Replay, StartReplayError> {
        let replays = self.clone();
        let start = self
            .0
            .shutdown
            .spawn(async move { replays.start_recording(request).await });
        start.await.map_err(io::Error::other)?
    }

    async fn start_recording(&self, request: ReplayRequest) -> Result<Replay, StartReplayError> {
        let prerequisites = self.check_prerequisites(&request).await?;
        let options = self.capture_options(&request);
        let access = prerequisites.access.clone();
        let capture = spawn_blocking(move || ScreenCapture::open(options, &access));
        let capture = capture.await.map_err(io::Error::other)??;

        let (replay, recording) = self
            .start_encoder(&request, &prerequisites, capture)
            .await?;
        let id = &replay.replay_id;
        tracing::info!(replay = %id, framerate = request.framerate.0, "recording started");
        let (state, cancelled) = self.0.stored.insert(replay.clone());
        let inner = self.0.clone();
        self.0.shutdown.spawn(async move {
            let reason = recording.run(&cancelled, &inner.shutdown).await;
            let (stored, shutdown) = (&inner.stored, &inner.shutdown);
            stored.finish(state, reason, None, shutdown).await;
            drop(prerequisites.permit);
        });
        Ok(replay)
    }

    async fn check_prerequisites(
        &self,
        request: &ReplayRequest,
    ) -> Result<Prerequisites, StartReplayError> {
        let inner = &*self.0;
        if inner.shutdown.is_requested() {
            return Err(StartReplayError::ShuttingDown);
        }
        let access = inner.chromium.screen()?;
        let encoder = inner.options.encoder.clone();
        let encoder = encoder.ok_or(StartReplayError::NoEncoder)?;
        let pulse_server = match &inner.options.pulse_server {
            _ if !request.record_audio => None,
            Some(server) if sound::is_reachable(server).await => Some(server.clone()),
            _ => return Err(StartReplayError::NoAudio),
        };
        let permit = inner.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| StartReplayError::LimitReached)?;
        if !inner.has_room() {
            return Err(StartReplayError::QuotaExceeded);
        }
        Ok(Prerequisites {
            access,
            encoder,
            pulse_server,
            permit,
        })
    }

    fn capture_options(&self, request: &ReplayRequest) -> CaptureOptions {
        let (cursor, chromium) = (self.0.cursor.clone(), self.0.chromium.clone());
        CaptureOptions {
            framerate: request.framerate.0,
            cursor: Box::new(move || cursor.get()),
            access: Box::new(move || chromium.screen().ok()),
        }
    }

    /// Starts the encoder and the capture thread. Removes the recording's files on failure.
    async fn start_encoder(
        &self,
        request: &ReplayRequest,
        prerequisites: &Prerequisites,
        capture: ScreenCapture,
    ) -> Result<(Replay, Recording), StartReplayError> {
        let (options, files) = (&self.0.options, self.0.stored.files());
        let (started_at, now) = (Instant::now(), Utc::now());
        let replay = Replay::recording(ReplayId::generate(), now.into());
        let path = files.partial_path(&replay.replay_id);
        let pulse_server = prerequisites.pulse_server.as_deref();
        let encoder = EncoderOptions {
            program: &prerequisites.encoder,
            size: capture.size(),
            audio: pulse_server.map(|server| AudioSource {
                server,
                started_at: now,
            }),
            output: path.clone(),
        };
        let limits = RecordingLimits {
            duration: match request.max_duration_in_seconds {
                Some(seconds) => Duration::from_secs(seconds.0.into()),
                None => options.max_duration,
            },
            bytes: options.max_bytes,
        };
        let start = async {
            files.write_metadata(&replay)?;
            let (child, frames) = recorder::start(encoder).await?;
            Recording::start(capture, child, frames, limits, path, started_at)
        };
        match start.await {
            Ok(recording) => Ok((replay, recording)),
            Err(error) => {
                let _ = files.remove(&replay.replay_id);
                Err(error.into())
            }
        }
    }
}
