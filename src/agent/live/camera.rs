//! Who looks at the screen for one viewer: a thread with a connection of its own to the X server, so that no viewer waits for another.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use super::{
    dirty::Dirty,
    frame::{self, Frame},
    pace::{Pace, Turn},
};
use crate::{
    agent::cursor::CursorShown,
    api::live::AgentMessage,
    system::{
        media::jpeg::Fineness,
        sync::waker::Waker,
        x11::screen::{ScreenError, WatchedScreen, Woken},
        x11::server::Access,
    },
};

/// How often it is looked where the pointer is, which the X server tells nobody by itself.
const POINTER_LOOK: Duration = Duration::from_millis(80);
/// Pictures of one frame that are made before the first is sent.
const AHEAD: usize = 2;

/// What there is to be shown.
pub enum Shot {
    Picture(Vec<u8>),
    Message(AgentMessage),
}

/// It films until this is dropped.
pub struct Camera {
    shots: mpsc::Receiver<Shot>,
    drawn: Arc<Drawn>,
}

impl Camera {
    pub fn start(
        access: Access,
        cursor: CursorShown,
        drawn: Arc<Drawn>,
    ) -> Result<Self, io::Error> {
        let (sender, shots) = mpsc::channel(AHEAD);
        let told = drawn.clone();
        std::thread::Builder::new()
            .name("live-view".into())
            .spawn(move || {
                let film = Film::open(&access, cursor, &told, &sender);
                if let Err(error) = film.and_then(Film::run) {
                    tracing::debug!(%error, "the screen of a live view is gone");
                }
            })?;
        Ok(Self { shots, drawn })
    }

    /// The next there is; `None` once the screen is gone.
    pub async fn next(&mut self) -> Option<Shot> {
        self.shots.recv().await
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.shots.close();
        self.drawn.wake();
    }
}

/// What the page has told of the frames it has drawn.
#[derive(Default)]
pub struct Drawn {
    /// Frames have other numbers under the next camera.
    sequence: AtomicU32,
    latest: Mutex<Latest>,
    changed: Condvar,
}

#[derive(Default)]
struct Latest {
    sequence: Option<u32>,
    called: bool,
    waker: Option<Waker>,
}

impl Drawn {
    pub fn tell(&self, sequence: u32) {
        self.lock().sequence = Some(sequence);
        self.changed.notify_all();
    }

    fn wake(&self) {
        let mut latest = self.lock();
        latest.called = true;
        if let Some(waker) = latest.waker.take() {
            waker.wake();
        }
        self.changed.notify_all();
    }

    fn attach(&self, waker: Waker) {
        let mut latest = self.lock();
        *latest = Latest {
            waker: Some(waker),
            ..Latest::default()
        };
    }

    /// The frame that was told of last, if any was since the last time.
    fn take(&self) -> Option<u32> {
        self.lock().sequence.take()
    }

    /// Waits for one, or for a call.
    fn wait(&self, deadline: Instant) {
        let nothing_new = |latest: &mut Latest| latest.sequence.is_none() && !latest.called;
        self.changed
            .wait_while_until(&mut self.lock(), nothing_new, deadline);
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Latest> {
        self.latest.lock()
    }
}

struct Film<'a> {
    screen: WatchedScreen,
    cursor: CursorShown,
    drawn: &'a Drawn,
    shots: &'a mpsc::Sender<Shot>,
    pace: Pace,
    /// Something has changed since the image was brought up to date.
    changed: bool,
    /// What was sent coarse.
    coarse: Dirty,
    pointer: Option<AgentMessage>,
    look_at_pointer: Instant,
}

/// The viewer is gone.
struct Gone;

impl<'a> Film<'a> {
    fn open(
        access: &Access,
        cursor: CursorShown,
        drawn: &'a Drawn,
        shots: &'a mpsc::Sender<Shot>,
    ) -> Result<Self, ScreenError> {
        let screen = WatchedScreen::open(access)?;
        drawn.attach(screen.waker());
        let now = Instant::now();
        Ok(Self {
            screen,
            cursor,
            drawn,
            shots,
            pace: Pace::new(now, drawn.sequence.load(Relaxed)),
            changed: true,
            coarse: Dirty::default(),
            pointer: None,
            look_at_pointer: now,
        })
    }

    fn run(mut self) -> Result<(), ScreenError> {
        while !self.shots.is_closed() {
            let now = Instant::now();
            if let Some(sequence) = self.drawn.take() {
                self.pace.seen(now, sequence);
            }
            if now >= self.look_at_pointer {
                self.look_at_pointer = now + POINTER_LOOK;
                if self.point()?.is_err() {
                    break;
                }
            }
            let done = match self.pace.turn(now, self.changed) {
                Turn::Changes(fineness) => self.show_changes(fineness)?,
                Turn::Refinement => self.refine(),
                Turn::Wait(until) => {
                    self.wait(until)?;
                    Ok(())
                }
            };
            if done.is_err() {
                break;
            }
        }
        Ok(())
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), ScreenError> {
        let until = until.map_or(self.look_at_pointer, |at| at.min(self.look_at_pointer));
        if self.changed || self.pace.is_under_way() {
            self.drawn.wait(until);
        } else {
            self.changed = self.screen.wait(until)? == Woken::Changed;
        }
        Ok(())
    }

    fn show_changes(&mut self, fineness: Fineness) -> Result<Result<(), Gone>, ScreenError> {
        let changes = self.screen.update(false)?;
        self.changed = false;
        let mut dirty = Dirty::default();
        for rect in changes.rects {
            dirty.add(rect);
        }
        if fineness != Fineness::Fine {
            self.coarse.join(&dirty);
        }
        Ok(self.show(&dirty, fineness))
    }

    fn refine(&mut self) -> Result<(), Gone> {
        let coarse = std::mem::take(&mut self.coarse);
        self.show(&coarse, Fineness::Fine)
    }

    fn show(&mut self, dirty: &Dirty, fineness: Fineness) -> Result<(), Gone> {
        let image = self.screen.image();
        let rects = dirty.on(image.size);
        if rects.is_empty() {
            self.pace.nothing(Instant::now(), !self.coarse.is_empty());
            return Ok(());
        }
        let sequence = self.pace.begin(Instant::now());
        self.drawn.sequence.store(sequence, Relaxed);
        let frame = Frame {
            image,
            sequence,
            fineness,
        };
        let mut pictures = frame.pictures(&rects);
        let (mut making, mut bytes) = (Duration::ZERO, 0);
        loop {
            let begun = Instant::now();
            let Some(picture) = pictures.next() else {
                break;
            };
            making += begun.elapsed();
            bytes += picture.len();
            give(self.shots, Shot::Picture(picture))?;
        }
        metrics::histogram!("berth_live_frame_seconds").record(making);
        metrics::counter!("berth_live_bytes_total").increment(bytes as u64);
        self.pace.sent(Instant::now(), !self.coarse.is_empty());
        Ok(())
    }

    /// Tells where the pointer is and what it looks like, if that is news.
    fn point(&mut self) -> Result<Result<(), Gone>, ScreenError> {
        let pointer = self.screen.pointer()?;
        let size = self.screen.image().size;
        if let Some(image) = &pointer.image {
            let picture = frame::pointer(image, size);
            if give(self.shots, Shot::Picture(picture)).is_err() {
                return Ok(Err(Gone));
            }
        }
        let message = AgentMessage::Pointer {
            x: pointer.x,
            y: pointer.y,
            shown: self.cursor.get(),
        };
        if self.pointer.as_ref() == Some(&message) {
            return Ok(Ok(()));
        }
        self.pointer = Some(message.clone());
        Ok(give(self.shots, Shot::Message(message)))
    }
}

fn give(shots: &mpsc::Sender<Shot>, shot: Shot) -> Result<(), Gone> {
    shots.blocking_send(shot).map_err(|_| Gone)
}
