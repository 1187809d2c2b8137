//! Orderly shutdown: tasks are asked to stop, finish their current work, and are waited for.
//!
//! ```text
//! request() or a signal ─▶ token cancelled ─▶ tasks end ─▶ drain() returns
//!            │                             second signal ─▶ exit at once
//!            └─▶ parts: the shutdown of a part is requested with that of the whole, or alone
//! ```

use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TrackedFuture},
};

use crate::system::sync::detach_on_drop::DetachOnDrop;

/// Exit code after a second signal: 128 + SIGINT, as a shell reports it.
const FORCED_EXIT_CODE: i32 = 130;

/// The shutdown signal of a server and the tasks that it waits for.
#[derive(Debug, Clone)]
pub struct Shutdown {
    token: CancellationToken,
    requested_at: Arc<OnceLock<Instant>>,
    tasks: TaskTracker,
    /// The tasks of connections, which may take a moment longer to close than the part.
    connections: TaskTracker,
    /// Whether only this part of the server ends, and nothing of it is used again.
    is_discarded: Arc<AtomicBool>,
    /// The kind of the shutdown of the whole: one of the constants below. All parts share it.
    kind: Arc<AtomicU8>,
}

/// No shutdown of the whole was requested.
const NONE: u8 = 0;
/// The process continues with another program.
const HANDOVER: u8 = 1;
/// The process ends.
const END: u8 = 2;

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    #[must_use]
    pub fn new() -> Self {
        let tasks = TaskTracker::new();
        Self {
            token: CancellationToken::new(),
            requested_at: Arc::default(),
            connections: tasks.clone(),
            tasks,
            is_discarded: Arc::default(),
            kind: Arc::default(),
        }
    }

    /// Returns a shutdown that SIGTERM or SIGINT requests; a second signal exits the process.
    ///
    /// # Errors
    /// Fails if the signal handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let requested = shutdown.clone();
        tokio::spawn(async move {
            either_signal(&mut term, &mut int).await;
            tracing::info!("shutdown requested");
            requested.request();
            either_signal(&mut term, &mut int).await;
            std::process::exit(FORCED_EXIT_CODE);
        });
        Ok(shutdown)
    }

    /// Returns the shutdown of a part of the server. It is requested with this one, or before it.
    /// Draining this one also waits for the tasks of the part.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = Self {
            token: self.token.child_token(),
            connections: self.connections.clone(),
            kind: self.kind.clone(),
            ..Self::new()
        };
        let (token, tasks) = (part.token.clone(), part.tasks.clone());
        self.spawn(async move {
            token.cancelled().await;
            tasks.close();
            tasks.wait().await;
        });
        part
    }

    /// Requests the shutdown. A handover that was requested before is given up.
    pub fn request(&self) {
        self.kind.store(END, Ordering::SeqCst);
        self.cancel();
    }

    fn cancel(&self) {
        self.requested_at.get_or_init(Instant::now);
        self.token.cancel();
    }

    /// Requests the shutdown of a part that nothing uses again: its processes are killed instead of
    /// being asked to end.
    pub fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        self.cancel();
    }

    /// Requests the shutdown of a server whose process continues with another program: what that
    /// takes over is not ended. Returns false if a shutdown was requested before.
    pub fn request_handover(&self) -> bool {
        let order = Ordering::SeqCst;
        let exchanged = self.kind.compare_exchange(NONE, HANDOVER, order, order);
        let is_first = exchanged.is_ok();
        if is_first {
            self.cancel();
        }
        is_first
    }

    /// Returns whether another program takes over from this part, which is not discarded.
    #[must_use]
    pub fn is_handover(&self) -> bool {
        self.kind.load(Ordering::SeqCst) == HANDOVER && !self.is_discarded()
    }

    /// Returns whether the part is discarded, instead of ending with the server.
    #[must_use]
    pub fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves when the shutdown is requested.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Resolves when the part is discarded.
    pub async fn discarded(&self) {
        self.requested().await;
        if !self.is_discarded() {
            std::future::pending().await
        }
    }

    /// Waits for `delay`. Returns false, without waiting longer, when the shutdown is requested.
    pub async fn sleep(&self, delay: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(delay) => true,
            () = self.requested() => false,
        }
    }

    /// Resolves when the shutdown was requested `delay` ago.
    async fn requested_for(&self, delay: Duration) {
        self.requested().await;
        let requested_at = *self.requested_at.get_or_init(Instant::now);
        tokio::time::sleep_until(requested_at + delay).await;
    }

    /// Resolves after `timeout`; during a shutdown when it was requested `deadline` ago instead, so
    /// that the steps that follow fit into its grace period.
    pub async fn timeout_or_deadline(&self, timeout: Duration, deadline: Duration) {
        tokio::select! {
            () = self.requested_for(deadline) => {}
            () = tokio::time::sleep(timeout) => {
                if self.is_requested() {
                    self.requested_for(deadline).await;
                }
            }
        }
    }

    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Spawns a task that [`Self::drain`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Returns a future that runs `work`, also to its end if it is dropped before. [`Self::drain`]
    /// waits for it.
    pub fn run_to_completion<F>(&self, work: F) -> DetachOnDrop<TrackedFuture<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        DetachOnDrop::new(self.tasks.track_future(work))
    }

    /// Spawns the task of a connection, which [`Self::drain`] of the whole server waits for, but
    /// that of a part does not.
    pub fn spawn_connection<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.connections.spawn(task)
    }

    /// Waits for all tasks, for `grace_period` at most; returns whether all have ended.
    pub async fn drain(&self, grace_period: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(grace_period, self.tasks.wait())
            .await
            .is_ok()
    }
}

async fn either_signal(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn part_ends_alone_or_with_the_whole_which_waits_for_it() {
        const LONG: Duration = Duration::from_secs(3600);
        let whole = Shutdown::new();
        let (first, second) = (whole.part(), whole.part());
        first.discard();
        assert!(first.drain(LONG).await);
        assert!(first.is_discarded() && !whole.is_requested() && !second.is_requested());
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        second.spawn(finished);
        whole.request();
        assert!(second.is_requested() && !second.is_discarded());
        let mut draining = Box::pin(whole.drain(LONG));
        assert!(futures::poll!(&mut draining).is_pending());
        drop(finish);
        assert!(draining.await);
    }

    #[tokio::test]
    async fn drain_waits_for_work_whose_future_was_dropped() {
        const LONG: Duration = Duration::from_secs(3600);
        let shutdown = Shutdown::new();
        let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
        let mut work = Box::pin(shutdown.run_to_completion(resumed));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        shutdown.request();
        let mut draining = Box::pin(shutdown.drain(LONG));
        assert!(futures::poll!(&mut draining).is_pending());
        resume.send(()).unwrap();
        assert!(draining.await);
    }

    #[tokio::test]
    async fn handover_is_given_up_for_a_shutdown_and_not_requested_after_one() {
        let shutdown = Shutdown::new();
        let (kept, discarded) = (shutdown.part(), shutdown.part());
        discarded.discard();
        assert!(shutdown.request_handover() && !shutdown.request_handover());
        assert!(kept.is_requested() && kept.is_handover());
        assert!(!discarded.is_handover());
        shutdown.request();
        assert!(!shutdown.is_handover() && !kept.is_handover());
        let ending = Shutdown::new();
        ending.request();
        assert!(!ending.request_handover() && !ending.is_handover());
    }

    #[tokio::test]
    async fn deadline_of_a_requested_shutdown_replaces_the_timeout() {
        const LONG: Duration = Duration::from_secs(3600);
        let shutdown = Shutdown::new();
        shutdown.timeout_or_deadline(Duration::ZERO, LONG).await;
        let mut waiting = Box::pin(shutdown.timeout_or_deadline(LONG, Duration::ZERO));
        assert!(futures::poll!(&mut waiting).is_pending());
        shutdown.request();
        waiting.await;
        let waiting = shutdown.timeout_or_deadline(Duration::ZERO, LONG);
        let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(waited.is_err(), "the timeout ended the wait");
    }
}
