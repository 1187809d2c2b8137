//! One recording while it is made: the thread that films, the encoder, and what ends them.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use nix::sys::{signal::Signal, statvfs::statvfs};
use tokio::{
    sync::oneshot,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::replays::ReplayEndReason,
    shutdown::Shutdown,
    system::{
        media::recorder::{Camera, Cut, Feed, NO_ROOM, Stop},
        process::child::{Child, signal_group},
    },
};

/// Between two looks at how large it is.
const LOOK: Duration = Duration::from_millis(250);
/// For the encoder to write the rest, once it has got all.
const ENCODER_END: Duration = Duration::from_secs(10);
/// With less room than this on the disk an encoder that failed did for lack of it.
const HARDLY_ANY: u64 = 1 << 20;

/// What it may grow to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub duration: Duration,
    pub bytes: u64,
}

pub struct Recording {
    encoder: Encoder,
    filmed: oneshot::Receiver<Cut>,
    stop: Stop,
    begun: Instant,
    bounds: Bounds,
    part: PathBuf,
}

impl Recording {
    /// Time counts from `begun`.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn begin(
        camera: Camera,
        child: Child,
        feed: Feed,
        bounds: Bounds,
        part: PathBuf,
        begun: Instant,
    ) -> io::Result<Self> {
        let (cut, filmed) = oneshot::channel();
        let stop = camera.stop();
        std::thread::Builder::new()
            .name("camera".into())
            .spawn(move || cut.send(camera.film(feed, begun)))?;
        Ok(Self {
            encoder: Encoder { child, ended: None },
            filmed,
            stop,
            begun,
            bounds,
            part,
        })
    }

    /// Stays with it until its file is complete; says why it ended.
    pub async fn run(mut self, asked: &CancellationToken, shutdown: &Shutdown) -> ReplayEndReason {
        let too_long = time::sleep_until((self.begun + self.bounds.duration).into());
        tokio::pin!(too_long);
        let mut looks = time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reason = None;
        let cut = loop {
            let why = tokio::select! {
                // Where a stop comes together with what it brings about, it is the reason.
                biased;
                () = asked.cancelled(), if reason.is_none() => ReplayEndReason::Stopped,
                () = shutdown.stopped(), if reason.is_none() => ReplayEndReason::AgentEnded,
                cut = &mut self.filmed => break cut,
                () = self.encoder.ended(), if self.encoder.ended.is_none() => match reason {
                    // It has got all.
                    Some(_) => continue,
                    None => self.failure(),
                },
                () = &mut too_long, if reason.is_none() => ReplayEndReason::MaxDuration,
                _ = looks.tick(), if reason.is_none() => match tokio::fs::metadata(&self.part).await {
                    Ok(part) if part.len() >= self.bounds.bytes => ReplayEndReason::MaxSize,
                    _ => continue,
                },
            };
            reason.get_or_insert(why);
            self.stop.ask();
        };
        let ended_well = self.encoder.end().await;
        match (reason, cut) {
            (Some(reason), Ok(Cut::Asked)) if ended_well => reason,
            (Some(failed @ (ReplayEndReason::DiskFull | ReplayEndReason::EncoderFailed)), _) => {
                failed
            }
            (None, Ok(Cut::ScreenGone(error))) => {
                tracing::warn!(%error, "the screen is gone while it was recorded");
                ReplayEndReason::ScreenEnded
            }
            // It was to end, and did not as it should have.
            (Some(reason), _) => match self.failure() {
                full @ ReplayEndReason::DiskFull => full,
                _ => reason,
            },
            (None, _) => self.failure(),
        }
    }

    /// Why the encoder failed.
    fn failure(&self) -> ReplayEndReason {
        let tail = self.encoder.child.tail();
        let full = tail.contains(NO_ROOM) || self.part.parent().is_some_and(is_full);
        tracing::warn!(status = ?self.encoder.ended, tail, full, "the encoder failed");
        if full {
            ReplayEndReason::DiskFull
        } else {
            ReplayEndReason::EncoderFailed
        }
    }
}

fn is_full(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|found| found.blocks_available() * found.fragment_size() < HARDLY_ANY)
}

struct Encoder {
    child: Child,
    ended: Option<io::Result<ExitStatus>>,
}

impl Encoder {
    async fn ended(&mut self) {
        let status = self.child.wait().await;
        self.ended = Some(status);
    }

    /// Waits for it to write the rest; says whether it could. It is gone then.
    async fn end(&mut self) -> bool {
        if self.ended.is_none() && time::timeout(ENCODER_END, self.ended()).await.is_err() {
            tracing::warn!("the encoder does not end and is killed");
            signal_group(self.child.pid(), Signal::SIGKILL);
            self.ended().await;
        }
        matches!(&self.ended, Some(Ok(status)) if status.success())
    }
}
