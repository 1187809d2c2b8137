//! A thread that lives as long as the process and runs one job after the other.

use std::{io, sync::mpsc, thread};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A dedicated thread for jobs. Unlike a thread pool it never has to start a thread for a job,
/// which the system may refuse when it is short of resources.
pub(in crate::system) struct JobThread(mpsc::Sender<Job>);

impl JobThread {
    /// Starts the thread. If the system refuses, every job fails.
    #[expect(clippy::disallowed_methods, reason = "every caller waits for its job")]
    pub(in crate::system) fn start(name: &str) -> Self {
        let (sender, jobs) = mpsc::channel::<Job>();
        let spawned = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || jobs.into_iter().for_each(|job| job()));
        if let Err(error) = spawned {
            tracing::error!(%error, name, "cannot start a thread");
        }
        Self(sender)
    }

    /// Runs `job` on the thread and returns its result. If the caller has stopped waiting, the
    /// result is passed to `on_abandoned` instead.
    ///
    /// # Errors
    /// Fails if the thread has ended or the job panicked.
    pub(in crate::system) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        on_abandoned: impl FnOnce(T) + Send + 'static,
    ) -> io::Result<T> {
        let (sender, result) = oneshot::channel();
        let job = move || {
            if let Err(abandoned) = sender.send(job()) {
                on_abandoned(abandoned);
            }
        };
        let thread_ended = || io::Error::other("the job thread has ended");
        self.0.send(Box::new(job)).map_err(|_| thread_ended())?;
        result.await.map_err(|_| thread_ended())
    }
}
