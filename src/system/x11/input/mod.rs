//! Mouse and keyboard input for an X server.
//!
//! A single thread owns the connections to the server and everything that is held down on it. It
//! plays batches one after the other; between two steps it serves urgent requests (a
//! viewer's input, the screen's state, a new screen).
//!
//! ```text
//!  Input::play ──► queue of batches ──┐
//!                                     ├─► InputThread ──► XInput ──► X server
//!  Input::act, view, attend ──────────┘     │   │
//!             (urgent queue)                │   └─ HeldInputs: who holds what
//!                                           └───── Playback: the batch in progress
//! ```
//!
//! - [`input_thread`]: the thread's loop, connections and urgent requests; [`playback`] plays a
//!   batch.
//! - [`x_input`]: pointer events and state of one server; [`x_keyboard`] its keyboard.
//! - [`keymap`]: finds keys on the keyboard and binds missing ones to spare keycodes.
//! - [`focus`]: keeps the keyboard focus where a window manager would.
//! - [`batch`], [`step`], [`progress`]: what is played, shared with the input of headless pages.
//!
//! The thread ends when the last [`Input`] is dropped.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags};
use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use tokio::{sync::oneshot, time::sleep_until};

use crate::system::{
    sync::{
        poll::poll_until,
        waker::{WakeOnDrop, Waker},
    },
    x11::server::DisplayAccess,
};

mod batch;
mod focus;
mod held;
mod input_thread;
mod keymap;
mod playback;
mod progress;
mod step;
mod x_input;
mod x_keyboard;

use x_input::XInput;

pub use super::screen::{Point, Size};
pub use {
    batch::{Batch, StartedBatch},
    held::SessionId,
    progress::Progress,
    step::{Notch, Step, TimeBudget},
};

/// Batches that may be queued.
const BATCH_QUEUE_CAPACITY: usize = 32;
/// Urgent requests that may be queued. They wait for at most one step.
const URGENT_QUEUE_CAPACITY: usize = 1024;
/// The time a batch may take in addition to its planned waits.
pub const BATCH_GRACE_PERIOD: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("the input queue is full")]
    Full,
    #[error("the screen is not reachable: {0}")]
    Screen(String),
    #[error("the input thread has terminated")]
    Terminated,
}

/// The current size of a screen or page, and the pointer's position on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenState {
    pub size: Size,
    pub pointer: Point,
}

/// The result of a batch that was started.
#[derive(Debug)]
pub struct PlayResult {
    /// The duration of each completed action.
    pub durations: Vec<Duration>,
    /// Why the next action failed, and after how long.
    pub failure: Option<(PlayError, Duration)>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum PlayError {
    #[error("the screen was lost: {0}")]
    ScreenLost(String),
    #[error("the browser did not process input within {} s", .0.as_secs())]
    Unresponsive(Duration),
    #[error("the keyboard has no spare keycode for another key")]
    NoSpareKeycode,
    #[error("the batch exceeded its planned duration by {} s", .0.as_secs())]
    Overrun(Duration),
}

/// The handle of the input thread. Clones share it.
#[derive(Clone)]
pub struct Input {
    jobs: SyncSender<Job>,
    urgent: SyncSender<UrgentRequest>,
    next_session: Arc<AtomicU64>,
    /// The number of batches that are queued or played.
    batches: Arc<AtomicUsize>,
    scroll: LastScroll,
    /// Wakes the thread when the last handle is dropped, so that it finds its channels closed.
    waker: Arc<WakeOnDrop>,
}

/// The last scroll, of which the page may not have received all notches yet.
#[derive(Debug, Clone, Copy)]
struct Scroll {
    at: Point,
    /// When it has them for certain.
    until: Instant,
}

type LastScroll = Arc<Mutex<Option<Scroll>>>;

/// A batch and its screen.
struct Job {
    access: DisplayAccess,
    /// Whether the plan depends on the pointer's position.
    needs_pointer: bool,
    batch: Batch<InputError>,
}

enum UrgentRequest {
    /// Connect to this screen and keep its keyboard focus.
    Attend(Option<DisplayAccess>),
    View(
        DisplayAccess,
        oneshot::Sender<Result<ScreenState, InputError>>,
    ),
    Act(DisplayAccess, SessionId, Step),
    /// Release everything that the session holds.
    EndSession(SessionId),
}

impl Input {
    /// Starts the thread. `on_cursor` is called with whether the pointer is hidden whenever that
    /// changes.
    pub fn start(on_cursor: impl Fn(bool) + Send + 'static) -> io::Result<Self> {
        let waker = Waker::new()?;
        let (jobs, job_receiver) = sync_channel(BATCH_QUEUE_CAPACITY);
        let (urgent, urgent_receiver) = sync_channel(URGENT_QUEUE_CAPACITY);
        let scroll = LastScroll::default();
        let inbox = Inbox {
            jobs: job_receiver,
            urgent: urgent_receiver,
            scroll: scroll.clone(),
            waker: waker.clone(),
        };
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || input_thread::run(inbox, Box::new(on_cursor)))?;
        Ok(Self {
            jobs,
            urgent,
            next_session: Arc::default(),
            batches: Arc::default(),
            scroll,
            waker: Arc::new(WakeOnDrop(waker)),
        })
    }

    /// Sets the screen whose keyboard focus is managed, or `None` while there is no screen.
    pub fn attend(&self, access: Option<DisplayAccess>) -> Result<(), InputError> {
        self.send_urgent(UrgentRequest::Attend(access))
    }

    /// Returns the screen's state. Served between two steps of a batch.
    pub async fn view(&self, access: DisplayAccess) -> Result<ScreenState, InputError> {
        let (reply, result) = oneshot::channel();
        self.send_urgent(UrgentRequest::View(access, reply))?;
        result.await.map_err(|_| InputError::Terminated)?
    }

    /// Plans a batch when its turn comes and plays it without interleaving other batches. Plays
    /// nothing if the plan fails. `plan` receives the pointer's position only if `needs_pointer` is
    /// set, as that costs a round trip. Dropping the future aborts the batch and releases what it
    /// holds.
    pub async fn play<E: Send + 'static>(
        &self,
        access: DisplayAccess,
        needs_pointer: bool,
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> Result<Result<PlayResult, E>, InputError> {
        let _count = BatchCount::new(&self.batches);
        let (batch, outcome) = Batch::new(plan);
        let job = Job {
            access,
            needs_pointer,
            batch,
        };
        match self.jobs.try_send(job) {
            Ok(()) => self.waker.0.wake(),
            Err(TrySendError::Full(_)) => return Err(InputError::Full),
            Err(TrySendError::Disconnected(_)) => return Err(InputError::Terminated),
        }
        // Makes the thread notice at once that the caller has dropped the future.
        let wake_on_cancel = scopeguard::guard(&self.waker.0, Waker::wake);
        let result = outcome.wait().await;
        ScopeGuard::into_inner(wake_on_cancel);
        result.unwrap_or(Err(InputError::Terminated))
    }

    /// Waits until the page has received all notches of the last scroll.
    pub async fn scrolled(&self) {
        let scroll = *self.scroll.lock();
        if let Some(scroll) = scroll {
            sleep_until(scroll.until.into()).await;
        }
    }

    /// Returns whether a new batch would have to wait.
    pub fn is_busy(&self) -> bool {
        self.batches.load(Ordering::Relaxed) > 0
    }

    pub fn new_session(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// Performs a step of a session, between two steps of a batch. Positions are clamped to the
    /// screen. `Wait` and `Type` steps are ignored: they belong in batches.
    pub fn act(
        &self,
        access: DisplayAccess,
        session: SessionId,
        step: Step,
    ) -> Result<(), InputError> {
        self.send_urgent(UrgentRequest::Act(access, session, step))
    }

    /// Releases everything that the session holds.
    pub fn end_session(&self, session: SessionId) {
        if let Err(InputError::Full) = self.send_urgent(UrgentRequest::EndSession(session)) {
            // Must not be lost. The queue has room again after the thread's next step.
            let input = self.clone();
            tokio::task::spawn_blocking(move || {
                // Moves the complete handle, with its waker, instead of the one field used.
                let input = input;
                let request = UrgentRequest::EndSession(session);
                if input.urgent.send(request).is_ok() {
                    input.waker.0.wake();
                }
            });
        }
    }

    fn send_urgent(&self, request: UrgentRequest) -> Result<(), InputError> {
        match self.urgent.try_send(request) {
            Ok(()) => {
                self.waker.0.wake();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(InputError::Full),
            Err(TrySendError::Disconnected(_)) => Err(InputError::Terminated),
        }
    }
}

/// Counts one batch until it is dropped.
struct BatchCount<'a>(&'a AtomicUsize);

impl<'a> BatchCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for BatchCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread's ends of the queues.
struct Inbox {
    jobs: Receiver<Job>,
    urgent: Receiver<UrgentRequest>,
    scroll: LastScroll,
    waker: Waker,
}

impl Inbox {
    /// Waits until there is a request, an event from the screen, or the deadline is reached.
    fn wait(&self, screen: Option<&XInput>, deadline: Option<Instant>) {
        let screen = screen.map(AsFd::as_fd);
        let fds = [Some(self.waker.as_fd()), screen].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // The caller checks all sources anyway, so a failed poll is harmless.
        let _ = poll_until(&mut fds, deadline);
        self.waker.take();
    }
}
