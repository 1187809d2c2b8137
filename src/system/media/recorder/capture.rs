//! The capture thread: waits for the screen to change and sends the encoder a frame each time.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{canvas::Canvas, encoder::FrameSender};
use crate::system::{
    sync::{poll::readable, waker::Waker},
    x11::{
        screen::{ScreenError, Size, WaitResult, WatchedScreen},
        server::DisplayAccess,
    },
};

/// The delay after the last change before the frame is repeated: ffmpeg writes a frame to the file
/// only when the next one arrives.
const REPEAT_DELAY: Duration = Duration::from_secs(1);
/// The interval of further repetitions while nothing changes. A recording that is cut off lacks at
/// most this much of a still end. An unchanged frame takes the encoder about 10 ms at full HD.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// The time to wait for another screen after one is lost.
const SCREEN_RETURN_TIMEOUT: Duration = Duration::from_secs(10);
const SCREEN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum time between two frames' timestamps.
const TIMESTAMP_TICK: Duration = Duration::from_millis(1);

/// Why a capture ended.
#[derive(Debug)]
pub enum CaptureEnd {
    Stopped,
    ScreenLost(ScreenError),
    EncoderFailed(io::Error),
}

pub struct CaptureOptions {
    /// The maximum number of frames per second.
    pub framerate: u32,
    /// Returns whether the cursor is shown.
    pub cursor: Box<dyn Fn() -> bool + Send>,
    /// Returns the current screen, if there is one.
    pub access: Box<dyn Fn() -> Option<DisplayAccess> + Send>,
}

/// Stops a capture from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl StopHandle {
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Waits until `deadline` or until the capture is stopped.
    fn wait(&self, deadline: Instant) {
        // The waker stays signalled and ends every later wait as well.
        let _ = readable([self.waker.as_fd()], Some(deadline));
    }
}

/// A screen that is ready to be recorded.
pub struct ScreenCapture {
    options: CaptureOptions,
    screen: WatchedScreen,
    canvas: Canvas,
    stop: StopHandle,
}

impl ScreenCapture {
    /// Opens the screen and captures the first image. Blocks.
    ///
    /// # Errors
    /// If the screen does not respond.
    pub fn open(options: CaptureOptions, access: &DisplayAccess) -> Result<Self, ScreenError> {
        let mut screen = WatchedScreen::open(access)?;
        let rects = screen.update((options.cursor)())?;
        let mut canvas = Canvas::new(screen.image().size);
        canvas.paint(screen.image(), &rects);
        let stop = StopHandle {
            stopped: Arc::default(),
            waker: screen.waker(),
        };
        Ok(Self {
            options,
            screen,
            canvas,
            stop,
        })
    }

    /// Returns the size of the frames.
    pub fn size(&self) -> Size {
        self.canvas.size()
    }

    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Records until it is stopped or fails. Frames are timestamped relative to `started_at`.
    /// Blocks.
    pub fn run(self, frames: FrameSender, started_at: Instant) -> CaptureEnd {
        let mut capture = CaptureLoop {
            frame_interval: Duration::from_secs(1) / self.options.framerate,
            options: self.options,
            canvas: self.canvas,
            stop: self.stop,
            frames,
            started_at,
            last_timestamp: None,
            repeated: false,
        };
        let end = capture.run(self.screen);
        // A final frame extends the recording to its real duration.
        if !matches!(end, CaptureEnd::EncoderFailed(_))
            && let Err(error) = capture.send_frame()
        {
            return CaptureEnd::EncoderFailed(error);
        }
        end
    }
}

struct CaptureLoop {
    options: CaptureOptions,
    frame_interval: Duration,
    canvas: Canvas,
    stop: StopHandle,
    frames: FrameSender,
    started_at: Instant,
    last_timestamp: Option<Duration>,
    /// Whether the last frame repeated the one before.
    repeated: bool,
}

impl CaptureLoop {
    fn run(&mut self, mut screen: WatchedScreen) -> CaptureEnd {
        if let Err(error) = self.send_frame() {
            return CaptureEnd::EncoderFailed(error);
        }
        loop {
            let lost = match self.follow(&mut screen) {
                Ok(()) => return CaptureEnd::Stopped,
                Err(FollowError::Encoder(error)) => return CaptureEnd::EncoderFailed(error),
                Err(FollowError::Screen(error)) => error,
            };
            // Closes the connection, which holds memory.
            drop(screen);
            screen = match self.wait_for_screen() {
                Ok(Some(next)) => next,
                Ok(None) => return CaptureEnd::Stopped,
                Err(Some(error)) => return CaptureEnd::EncoderFailed(error),
                Err(None) => return CaptureEnd::ScreenLost(lost),
            };
        }
    }

    /// Records one screen until the capture is stopped.
    fn follow(&mut self, screen: &mut WatchedScreen) -> Result<(), FollowError> {
        loop {
            // The server does not report pointer movement: update at the frame rate to detect it.
            let deadline = Instant::now() + self.frame_interval.min(self.time_until_repeat());
            match screen.wait(deadline)? {
                WaitResult::Changed => self.stop.wait(self.next_frame_at()),
                WaitResult::Woken | WaitResult::Timeout => {}
            }
            let rects = screen.update((self.options.cursor)())?;
            self.canvas.paint(screen.image(), &rects);
            if self.stop.is_stopped() {
                return Ok(());
            }
            if !rects.is_empty() {
                self.send_frame().map_err(FollowError::Encoder)?;
                self.repeated = false;
            } else if self.time_until_repeat().is_zero() {
                self.send_frame().map_err(FollowError::Encoder)?;
                self.repeated = true;
            }
        }
    }

    /// Waits for the next screen after one was lost. Returns `Ok(None)` if the capture is stopped
    /// meanwhile and `Err(None)` on timeout.
    fn wait_for_screen(&mut self) -> Result<Option<WatchedScreen>, Option<io::Error>> {
        let deadline = Instant::now() + SCREEN_RETURN_TIMEOUT;
        while !self.stop.is_stopped() {
            let opened = (self.options.access)().and_then(|access| {
                WatchedScreen::open_with_waker(&access, self.stop.waker.clone()).ok()
            });
            if let Some(screen) = opened {
                tracing::info!("recording continues on a new screen");
                return Ok(Some(screen));
            }
            if Instant::now() > deadline {
                return Err(None);
            }
            if self.time_until_repeat().is_zero() {
                self.send_frame()?;
                self.repeated = true;
            }
            self.stop.wait(Instant::now() + SCREEN_POLL_INTERVAL);
        }
        Ok(None)
    }

    /// Returns the earliest time of the next frame.
    fn next_frame_at(&self) -> Instant {
        let last = self.last_timestamp.unwrap_or_default();
        self.started_at + last + self.frame_interval
    }

    /// Returns the time until a frame is due even if nothing changes.
    fn time_until_repeat(&self) -> Duration {
        let delay = if self.repeated {
            KEEP_ALIVE_INTERVAL
        } else {
            REPEAT_DELAY
        };
        let due = self.started_at + self.last_timestamp.unwrap_or_default() + delay;
        due.saturating_duration_since(Instant::now())
    }

    fn send_frame(&mut self) -> io::Result<()> {
        let timestamp = match self.last_timestamp {
            None => Duration::ZERO,
            Some(last) => self.started_at.elapsed().max(last + TIMESTAMP_TICK),
        };
        self.frames.send(timestamp, self.canvas.bytes())?;
        self.last_timestamp = Some(timestamp);
        Ok(())
    }
}

enum FollowError {
    Screen(ScreenError),
    Encoder(io::Error),
}

impl From<ScreenError> for FollowError {
    fn from(error: ScreenError) -> Self {
        Self::Screen(error)
    }
}
