//! Stopping in order: whoever is asked to stop ends its streams, finishes what it does, and is waited for.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the second signal makes the process exit with: as a shell tells of SIGINT.
const EXIT_AT_ONCE: i32 = 130;

/// Owns every task of a server and the wish to stop.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops at SIGTERM or SIGINT; a second one exits at once.
    ///
    /// # Errors
    /// Where the signals cannot be listened to.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let stop = shutdown.stop.clone();
        tokio::spawn(async move {
            first_of(&mut term, &mut int).await;
            tracing::info!("stopping");
            stop.cancel();
            first_of(&mut term, &mut int).await;
            std::process::exit(EXIT_AT_ONCE);
        });
        Ok(shutdown)
    }

    pub fn stop(&self) {
        self.stop.cancel();
    }

    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves once the stop was asked.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs a task that [`Self::drain`] waits for.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Waits for all tasks, at most `grace`; says whether all ended.
    pub async fn drain(&self, grace: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(grace, self.tasks.wait()).await.is_ok()
    }
}

async fn first_of(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
