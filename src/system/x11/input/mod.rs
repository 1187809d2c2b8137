//! Mouse and keyboard of an X server: one thread owns the connections to it, and whatever is held down there.

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
use scopeguard::ScopeGuard;
use tokio::sync::oneshot;

use crate::system::{
    sync::poll::poll_until,
    sync::waker::{WakeOnDrop, Waker},
    x11::server::DisplayAccess,
};

mod batch;
mod focus;
mod held;
mod keymap;
mod owner;
mod progress;
mod screen;
mod step;

use screen::Screen;

pub use super::screen::{Point, Size};
pub use batch::{Batch, Begun};
pub use held::SessionId;
pub use progress::Progress;
pub use step::{Budget, Notch, Step};

/// Batches that may wait for their turn.
const QUEUE: usize = 32;
/// What is done at once may wait only for the step that is being done.
const URGENT_QUEUE: usize = 1024;
/// Beyond what the waits of a batch come to, for its steps.
pub const SLACK: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("as much input is waiting as may wait")]
    Full,
    #[error("the screen does not answer: {0}")]
    Screen(String),
    #[error("the input has ended")]
    Ended,
}

/// What there is at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub size: Size,
    pub pointer: Point,
}

/// What came of a batch.
#[derive(Debug)]
pub struct Played {
    /// How long each action took that was done.
    pub took: Vec<Duration>,
    /// Why the one after these was not done to its end, and how long it took until then.
    pub failure: Option<(PlayError, Duration)>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum PlayError {
    #[error("the screen went away: {0}")]
    Screen(String),
    #[error("the browser took no input for {} s", .0.as_secs())]
    NotTaken(Duration),
    #[error("the keyboard has no room for another key")]
    NoKey,
    #[error("it took {} s longer than planned", .0.as_secs())]
    TooLong(Duration),
}

/// The handle; it is the thread's as long as one of these is there.
#[derive(Clone)]
pub struct Input {
    jobs: SyncSender<Job>,
    urgent: SyncSender<Urgent>,
    sessions: Arc<AtomicU64>,
    /// Batches that are waiting or played.
    batches: Arc<AtomicUsize>,
    /// Rung with the last handle: by then the thread finds the channels closed.
    bell: Arc<WakeOnDrop>,
}

/// A batch, and the screen it is for.
struct Job {
    access: DisplayAccess,
    /// Whether the plan depends on where the pointer is.
    wants_pointer: bool,
    batch: Batch<InputError>,
}

enum Urgent {
    /// This is the screen from now on.
    Attend(Option<DisplayAccess>),
    View(DisplayAccess, oneshot::Sender<Result<View, InputError>>),
    Act(DisplayAccess, SessionId, Step),
    /// The session has ended: what it holds is released.
    End(SessionId),
}

impl Input {
    /// Starts the thread. `on_cursor` is told whether the pointer is hidden, whenever that changes.
    pub fn start(on_cursor: impl Fn(bool) + Send + 'static) -> io::Result<Self> {
        let waker = Waker::new()?;
        let (jobs, jobs_receiver) = sync_channel(QUEUE);
        let (urgent, urgent_receiver) = sync_channel(URGENT_QUEUE);
        let inbox = Inbox {
            jobs: jobs_receiver,
            urgent: urgent_receiver,
            waker: waker.clone(),
        };
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || owner::run(inbox, Box::new(on_cursor)))?;
        Ok(Self {
            jobs,
            urgent,
            sessions: Arc::default(),
            batches: Arc::default(),
            bell: Arc::new(WakeOnDrop(waker)),
        })
    }

    /// Keeps the keyboard's focus right on that screen from now on; `None` where there is none for the moment.
    pub fn attend(&self, access: Option<DisplayAccess>) -> Result<(), InputError> {
        self.send_urgent(Urgent::Attend(access))
    }

    /// Answered between two steps, whatever is being played.
    pub async fn view(&self, access: DisplayAccess) -> Result<View, InputError> {
        let (reply, answer) = oneshot::channel();
        self.send_urgent(Urgent::View(access, reply))?;
        answer.await.map_err(|_| InputError::Ended)?
    }

    /// Plans once it is its turn, and plays what was planned: nothing of another batch comes between. Where the plan is refused,
    /// nothing is done. The screen is asked where the pointer is only where the plan wants to know that. Who stops waiting for this ends
    /// it; what it holds is then released.
    pub async fn play<E: Send + 'static>(
        &self,
        access: DisplayAccess,
        wants_pointer: bool,
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> Result<Result<Played, E>, InputError> {
        let _counted = Counted::new(&self.batches);
        let (batch, outcome) = Batch::new(plan);
        let job = Job {
            access,
            wants_pointer,
            batch,
        };
        match self.jobs.try_send(job) {
            Ok(()) => self.bell.0.wake(),
            Err(TrySendError::Full(_)) => return Err(InputError::Full),
            Err(TrySendError::Disconnected(_)) => return Err(InputError::Ended),
        }
        // Whoever waits may leave before it has ended: the thread is to see that at once.
        let leaving = scopeguard::guard(&self.bell.0, Waker::wake);
        let ended = outcome.wait().await;
        ScopeGuard::into_inner(leaving);
        ended.unwrap_or(Err(InputError::Ended))
    }

    /// Whether a batch would have to wait.
    pub fn is_busy(&self) -> bool {
        self.batches.load(Ordering::Relaxed) > 0
    }

    pub fn new_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// Done at once, also in the middle of a batch. Places off the screen are brought onto it; waits and texts are for batches.
    pub fn act(
        &self,
        access: DisplayAccess,
        session: SessionId,
        step: Step,
    ) -> Result<(), InputError> {
        self.send_urgent(Urgent::Act(access, session, step))
    }

    /// Releases what the session holds.
    pub fn end(&self, session: SessionId) {
        if let Err(InputError::Full) = self.send_urgent(Urgent::End(session)) {
            // This is not to be lost. There is room again once the thread has done its next step.
            let input = self.clone();
            tokio::task::spawn_blocking(move || {
                // All of it, with the bell: a closure would take the one field that it uses.
                let input = input;
                if input.urgent.send(Urgent::End(session)).is_ok() {
                    input.bell.0.wake();
                }
            });
        }
    }

    fn send_urgent(&self, urgent: Urgent) -> Result<(), InputError> {
        match self.urgent.try_send(urgent) {
            Ok(()) => {
                self.bell.0.wake();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(InputError::Full),
            Err(TrySendError::Disconnected(_)) => Err(InputError::Ended),
        }
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the thread is told.
struct Inbox {
    jobs: Receiver<Job>,
    urgent: Receiver<Urgent>,
    waker: Waker,
}

impl Inbox {
    /// Until there is something in it, or something to be read from the screen, or the time is over.
    fn wait(&self, screen: Option<&Screen>, until: Option<Instant>) {
        let screen = screen.map(AsFd::as_fd);
        let fds = [Some(self.waker.as_fd()), screen].into_iter().flatten();
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whoever called looks at what there is, also where it cannot be waited for.
        let _ = poll_until(&mut fds, until);
        self.waker.take();
    }
}
