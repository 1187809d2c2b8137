//! The thread that films: waits for the screen to change and hands the encoder a frame each time.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use std::os::fd::AsFd;

use super::{canvas::Canvas, encoder::Feed};
use crate::system::{
    sync::poll::readable,
    sync::waker::Waker,
    x11::screen::{ScreenError, Size, WatchedScreen, Woken},
    x11::server::Access,
};

/// A frame is in the file once the next one has come: after a change that none follows, this long.
const REPEAT: Duration = Duration::from_secs(1);
/// As long as nothing changes after that, a frame says so: what a recording that breaks off may lack of stillness at its end. Each takes the encoder
/// about ten milliseconds at full HD, though nothing is new in it.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// For the next screen to come, after one has gone.
const SCREEN_RETURNS: Duration = Duration::from_secs(10);
/// Between two looks for it.
const SCREEN_LOOK: Duration = Duration::from_millis(100);

/// Why it does not film any more.
#[derive(Debug)]
pub enum Cut {
    Asked,
    ScreenGone(ScreenError),
    Encoder(io::Error),
}

/// What is filmed, and how.
pub struct Scene {
    /// Frames per second, at most.
    pub framerate: u32,
    /// Whether the cursor is shown.
    pub cursor: Box<dyn Fn() -> bool + Send>,
    /// The screen there is at the moment.
    pub access: Box<dyn Fn() -> Option<Access> + Send>,
}

/// Ends the filming from elsewhere.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits until then or until the stop.
    fn wait(&self, deadline: Instant) {
        // What wakes it stays: it ends every later wait as well.
        let _ = readable([self.waker.as_fd()], Some(deadline));
    }
}

pub struct Camera {
    scene: Scene,
    screen: WatchedScreen,
    canvas: Canvas,
    stop: Stop,
}

impl Camera {
    /// Blocks until the first image is there.
    ///
    /// # Errors
    /// Where the screen does not answer.
    pub fn open(scene: Scene, access: &Access) -> Result<Self, ScreenError> {
        let mut screen = WatchedScreen::open(access)?;
        let changes = screen.update((scene.cursor)())?;
        let mut canvas = Canvas::new(screen.image().size);
        canvas.paint(screen.image(), &changes);
        let stop = Stop {
            asked: Arc::default(),
            waker: screen.waker(),
        };
        Ok(Self {
            scene,
            screen,
            canvas,
            stop,
        })
    }

    /// The size of the frames.
    pub fn size(&self) -> Size {
        self.canvas.size()
    }

    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Films until it is stopped or cannot go on; time counts from `begun`. Blocks.
    pub fn film(self, feed: Feed, begun: Instant) -> Cut {
        let Self {
            scene,
            screen,
            canvas,
            stop,
        } = self;
        let mut film = Film {
            interval: Duration::from_secs(1) / scene.framerate,
            scene,
            canvas,
            stop,
            feed,
            begun,
            last: None,
            repeated: false,
        };
        let cut = film.roll(screen);
        // It is as long as it took: the last image lasts until now.
        if !matches!(cut, Cut::Encoder(_))
            && let Err(error) = film.send()
        {
            return Cut::Encoder(error);
        }
        cut
    }
}

struct Film {
    scene: Scene,
    interval: Duration,
    canvas: Canvas,
    stop: Stop,
    feed: Feed,
    begun: Instant,
    /// When the last frame was.
    last: Option<Duration>,
    /// Whether it was the same as the one before.
    repeated: bool,
}

impl Film {
    fn roll(&mut self, mut screen: WatchedScreen) -> Cut {
        if let Err(error) = self.send() {
            return Cut::Encoder(error);
        }
        loop {
            let lost = match self.follow(&mut screen) {
                Ok(()) => return Cut::Asked,
                Err(Lost::Encoder(error)) => return Cut::Encoder(error),
                Err(Lost::Screen(error)) => error,
            };
            // Its connection holds memory.
            drop(screen);
            screen = match self.another() {
                Ok(Some(another)) => another,
                Ok(None) => return Cut::Asked,
                Err(Some(error)) => return Cut::Encoder(error),
                Err(None) => return Cut::ScreenGone(lost),
            };
        }
    }

    /// Follows one screen until the stop.
    fn follow(&mut self, screen: &mut WatchedScreen) -> Result<(), Lost> {
        loop {
            // The pointer's moves are not told, but looked for as often as there may be frames.
            let look = Instant::now() + self.interval.min(self.until_due());
            match screen.wait(look)? {
                Woken::Called => {}
                Woken::Changed => self.stop.wait(self.next_frame()),
                Woken::Timeout => {}
            }
            let changes = screen.update((self.scene.cursor)())?;
            self.canvas.paint(screen.image(), &changes);
            if self.stop.is_asked() {
                return Ok(());
            }
            if !changes.is_empty() {
                self.send().map_err(Lost::Encoder)?;
                self.repeated = false;
            } else if self.until_due().is_zero() {
                self.send().map_err(Lost::Encoder)?;
                self.repeated = true;
            }
        }
    }

    /// Looks for the screen that comes after one that has gone; nothing where it is stopped meanwhile.
    fn another(&mut self) -> Result<Option<WatchedScreen>, Option<io::Error>> {
        let deadline = Instant::now() + SCREEN_RETURNS;
        while !self.stop.is_asked() {
            let opened = (self.scene.access)().and_then(|access| {
                WatchedScreen::open_woken_by(&access, self.stop.waker.clone()).ok()
            });
            if let Some(screen) = opened {
                tracing::info!("another screen is recorded after one that has gone");
                return Ok(Some(screen));
            }
            if Instant::now() > deadline {
                return Err(None);
            }
            if self.until_due().is_zero() {
                self.send()?;
                self.repeated = true;
            }
            self.stop.wait(Instant::now() + SCREEN_LOOK);
        }
        Ok(None)
    }

    /// The earliest moment of the next frame.
    fn next_frame(&self) -> Instant {
        let last = self.last.unwrap_or_default();
        self.begun + last + self.interval
    }

    /// How long it is until a frame must come even if nothing changes.
    fn until_due(&self) -> Duration {
        let pause = if self.repeated { KEEP_ALIVE } else { REPEAT };
        let due = self.begun + self.last.unwrap_or_default() + pause;
        due.saturating_duration_since(Instant::now())
    }

    fn send(&mut self) -> io::Result<()> {
        const TICK: Duration = Duration::from_millis(1);
        let now = match self.last {
            None => Duration::ZERO,
            Some(last) => self.begun.elapsed().max(last + TICK),
        };
        self.feed.send(now, self.canvas.bytes())?;
        self.last = Some(now);
        Ok(())
    }
}

enum Lost {
    Screen(ScreenError),
    Encoder(io::Error),
}

impl From<ScreenError> for Lost {
    fn from(error: ScreenError) -> Self {
        Self::Screen(error)
    }
}
