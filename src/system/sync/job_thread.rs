//! A thread that lives as long as the process and runs one job after the other.

use std::{io, sync::mpsc, thread};

use parking_lot::Mutex;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A dedicated thread for jobs. Unlike a thread pool it never has to start a thread for a job,
/// which the system may refuse when it is short of resources.
pub(in crate::system) struct JobThread {
    name: &'static str,
    /// `None` if the system has refused to start the thread so far.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
}

/// The jobs for a thread.
pub(in crate::system) struct Jobs(mpsc::Receiver<Job>);

impl Jobs {
    /// Runs the jobs until [`JobThread::end`] is called. Blocks.
    pub(in crate::system) fn run(self) {
        self.0.into_iter().for_each(|job| job());
    }
}

impl JobThread {
    /// Starts the thread. If the system refuses, the next job tries again.
    pub(in crate::system) fn start(name: &'static str) -> Self {
        let thread = Self {
            name,
            jobs: Mutex::new(None),
        };
        if let Err(error) = thread.sender() {
            tracing::error!(%error, name, "cannot start a thread");
        }
        thread
    }

    /// Returns a handle of the calling thread, which is to run the jobs.
    #[expect(clippy::disallowed_methods, reason = "every caller waits for its job")]
    pub(in crate::system) fn calling(name: &'static str) -> (Self, Jobs) {
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = Self {
            name,
            jobs: Mutex::new(Some(sender)),
        };
        (thread, Jobs(jobs))
    }

    /// Ends the thread after the jobs so far. A later job starts another one.
    pub(in crate::system) fn end(&self) {
        *self.jobs.lock() = None;
    }

    #[expect(clippy::disallowed_methods, reason = "every caller waits for its job")]
    fn sender(&self) -> io::Result<mpsc::Sender<Job>> {
        let mut started = self.jobs.lock();
        if let Some(sender) = &*started {
            return Ok(sender.clone());
        }
        let (sender, jobs) = mpsc::channel::<Job>();
        let builder = thread::Builder::new().name(self.name.to_owned());
        builder.spawn(move || jobs.into_iter().for_each(|job| job()))?;
        *started = Some(sender.clone());
        Ok(sender)
    }

    /// Runs `job` on the thread and returns its result. If the caller stops waiting, a job that has
    /// not started is dropped, and the result of one that has is passed to `on_abandoned`.
    ///
    /// # Errors
    /// Fails if the thread cannot be started or has ended, or the job panicked.
    pub(in crate::system) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        on_abandoned: impl FnOnce(T) + Send + 'static,
    ) -> io::Result<T> {
        let (sender, result) = oneshot::channel();
        let job = move || {
            if sender.is_closed() {
                return;
            }
            if let Err(abandoned) = sender.send(job()) {
                on_abandoned(abandoned);
            }
        };
        let thread_ended = || io::Error::other("the job thread has ended");
        let sender = self.sender()?;
        sender.send(Box::new(job)).map_err(|_| thread_ended())?;
        result.await.map_err(|_| thread_ended())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use futures::{FutureExt, join};

    use super::*;

    #[tokio::test]
    async fn queued_job_of_an_abandoned_call_is_not_run() {
        let thread = JobThread::start("test");
        let (release, released) = mpsc::sync_channel::<()>(1);
        let (run, abandoned) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (job_run, job_abandoned) = (run.clone(), abandoned.clone());
        let first = thread.run(move || released.recv(), drop);
        let second = thread.run(
            move || job_run.store(true, Ordering::Relaxed),
            move |()| job_abandoned.store(true, Ordering::Relaxed),
        );
        let third = async {
            // The first poll queues the job; the future is dropped without its result.
            assert!(second.now_or_never().is_none());
            release.send(()).unwrap();
            thread.run(|| 3, drop).await.unwrap()
        };
        let (first, third) = join!(first, third);
        first.unwrap().unwrap();
        assert_eq!(third, 3);
        assert!(!run.load(Ordering::Relaxed) && !abandoned.load(Ordering::Relaxed));
    }
}
