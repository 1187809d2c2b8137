//! A thread that lives as long as the process and does one job after the other.

use std::{io, sync::mpsc};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Unlike a pool of threads it needs no new one when a job comes, which the system may refuse just then.
pub(in crate::system) struct JobThread(mpsc::Sender<Job>);

impl JobThread {
    pub fn start(name: &str) -> Self {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || jobs.into_iter().for_each(|job| job()))
            .expect("a thread starts");
        Self(sender)
    }

    /// Does `job` there. What came of it goes to `abandoned` where the caller has stopped waiting.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
        abandoned: impl FnOnce(T) + Send + 'static,
    ) -> io::Result<T> {
        let (reply, done) = oneshot::channel();
        let job = move || {
            if let Err(unwanted) = reply.send(job()) {
                abandoned(unwanted);
            }
        };
        let gone = || io::Error::other("a thread of ours is gone");
        self.0.send(Box::new(job)).map_err(|_| gone())?;
        done.await.map_err(|_| gone())
    }
}
