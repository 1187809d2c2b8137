//! A thread that ends what does not end by itself: a script that is over its time while it holds the engine, and the whole
//! process once the agent is gone.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use deno_core::v8;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        signal::{Signal, kill},
    },
    unistd::Pid,
};

pub struct Stopper {
    shared: Arc<Shared>,
}

struct Shared {
    deadline: Mutex<Option<Instant>>,
    fired: AtomicBool,
    changed: EventFd,
}

impl Stopper {
    /// Watches `socket` for the agent's end and the engine behind `handle` for its deadline.
    pub fn start(socket: OwnedFd, handle: v8::IsolateHandle) -> std::io::Result<Stopper> {
        let shared = Arc::new(Shared {
            deadline: Mutex::new(None),
            fired: AtomicBool::new(false),
            changed: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        });
        let watched = shared.clone();
        std::thread::Builder::new()
            .name("stop".into())
            .stack_size(64 << 10)
            .spawn(move || watch(&socket, &handle, &watched))?;
        Ok(Stopper { shared })
    }

    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *lock(&self.shared.deadline) = deadline;
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.shared.changed.write(1);
    }

    /// Whether the deadline has passed while the engine was busy.
    pub fn has_fired(&self) -> bool {
        self.shared.fired.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(socket: &OwnedFd, handle: &v8::IsolateHandle, shared: &Shared) {
    loop {
        let remaining = lock(&shared.deadline)
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            *lock(&shared.deadline) = None;
            shared.fired.store(true, Ordering::Release);
            handle.terminate_execution();
            continue;
        }
        let timeout = match remaining {
            // Up to the next millisecond, so that it is over when this returns.
            Some(remaining) => {
                PollTimeout::try_from(remaining.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut watched = [
            PollFd::new(
                socket.as_fd(),
                PollFlags::from_bits_retain(nix::libc::POLLRDHUP),
            ),
            PollFd::new(shared.changed.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut watched, timeout).is_err() {
            continue;
        }
        if watched[0].any().unwrap_or(true) {
            // Nobody is left to answer to, and the engine may never come back to notice.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
        if watched[1].any().unwrap_or(false) {
            let _ = shared.changed.read();
        }
    }
}
