//! A recording in progress: the capture thread, the encoder process, and the limits that end
//! them.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tokio::{
    sync::oneshot,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::replays::ReplayEndReason,
    shutdown::Shutdown,
    system::{
        files::space::FileSystemSpace,
        media::recorder::{CaptureEnd, DISK_FULL, FrameSender, ScreenCapture, StopHandle},
        process::child::{Child, signal_group},
    },
};

/// The interval at which the file's size is checked.
const SIZE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time the encoder may take to write the rest after the last frame.
const ENCODER_EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Free bytes below which a failure of the encoder is attributed to a full disk.
const MIN_FREE_BYTES: u64 = 1 << 20;

/// The limits at which a recording ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordingLimits {
    pub(super) duration: Duration,
    pub(super) bytes: u64,
}

/// A recording in progress. [`Self::run`] must be called: dropping it leaves the thread running.
pub(super) struct Recording {
    encoder: Encoder,
    capture_end: oneshot::Receiver<CaptureEnd>,
    stop: StopHandle,
    started_at: Instant,
    limits: RecordingLimits,
    /// The file that the encoder writes.
    path: PathBuf,
}

impl Recording {
    /// Starts the capture thread. Frames are timestamped relative to `started_at`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        capture: ScreenCapture,
        child: Child,
        frames: FrameSender,
        limits: RecordingLimits,
        path: PathBuf,
        started_at: Instant,
    ) -> io::Result<Self> {
        let (sender, capture_end) = oneshot::channel();
        let stop = capture.stop_handle();
        std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || sender.send(capture.run(frames, started_at)))?;
        Ok(Self {
            encoder: Encoder { child, exit: None },
            capture_end,
            stop,
            started_at,
            limits,
            path,
        })
    }

    /// Runs until the file is complete and returns why the recording ended.
    pub(super) async fn run(
        mut self,
        cancelled: &CancellationToken,
        shutdown: &Shutdown,
    ) -> ReplayEndReason {
        let max_duration = time::sleep_until((self.started_at + self.limits.duration).into());
        tokio::pin!(max_duration);
        let mut size_checks = time::interval(SIZE_CHECK_INTERVAL);
        size_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reason = None;
        let capture_end = loop {
            let new_reason = tokio::select! {
                // A stop takes precedence over its consequences.
                biased;
                () = cancelled.cancelled(), if reason.is_none() => ReplayEndReason::Stopped,
                () = shutdown.requested(), if reason.is_none() => ReplayEndReason::AgentEnded,
                end = &mut self.capture_end => break end,
                () = self.encoder.wait(), if self.encoder.exit.is_none() => match reason {
                    // It has received everything.
                    Some(_) => continue,
                    None => self.encoder_failure(),
                },
                () = &mut max_duration, if reason.is_none() => ReplayEndReason::MaxDuration,
                _ = size_checks.tick(), if reason.is_none() => {
                    match tokio::fs::metadata(&self.path).await {
                        Ok(file) if file.len() >= self.limits.bytes => ReplayEndReason::MaxSize,
                        _ => continue,
                    }
                }
            };
            reason.get_or_insert(new_reason);
            self.stop.stop();
        };
        let succeeded = self.encoder.finish().await;
        match (reason, capture_end) {
            (Some(reason), Ok(CaptureEnd::Stopped)) if succeeded => reason,
            (Some(failed @ (ReplayEndReason::DiskFull | ReplayEndReason::EncoderFailed)), _) => {
                failed
            }
            (None, Ok(CaptureEnd::ScreenLost(error))) => {
                tracing::warn!(%error, "recording lost its screen");
                ReplayEndReason::ScreenEnded
            }
            // The recording was stopped, but capture or encoder failed to end properly.
            (Some(reason), _) => match self.encoder_failure() {
                full @ ReplayEndReason::DiskFull => full,
                _ => reason,
            },
            (None, _) => self.encoder_failure(),
        }
    }

    /// Logs the encoder's failure and returns its reason.
    fn encoder_failure(&self) -> ReplayEndReason {
        let tail = self.encoder.child.tail();
        let disk_full = tail.contains(DISK_FULL) || self.path.parent().is_some_and(is_disk_full);
        tracing::warn!(status = ?self.encoder.exit, tail, disk_full, "encoder failed");
        if disk_full {
            ReplayEndReason::DiskFull
        } else {
            ReplayEndReason::EncoderFailed
        }
    }
}

fn is_disk_full(directory: &Path) -> bool {
    FileSystemSpace::read(directory).is_ok_and(|space| space.available < MIN_FREE_BYTES)
}

struct Encoder {
    child: Child,
    exit: Option<io::Result<ExitStatus>>,
}

impl Encoder {
    async fn wait(&mut self) {
        let status = self.child.wait().await;
        self.exit = Some(status);
    }

    /// Waits for the encoder to write the rest and exit, and returns whether it succeeded. Kills it
    /// on timeout.
    async fn finish(&mut self) -> bool {
        if self.exit.is_none()
            && time::timeout(ENCODER_EXIT_TIMEOUT, self.wait())
                .await
                .is_err()
        {
            tracing::warn!("encoder did not exit in time, killing it");
            signal_group(self.child.pid(), Signal::SIGKILL);
            self.wait().await;
        }
        matches!(&self.exit, Some(Ok(status)) if status.success())
    }
}
