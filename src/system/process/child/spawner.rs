//! The thread that starts all children.

use std::{io, sync::OnceLock, thread};

use crate::system::sync::job_thread::JobThread;

static SPAWNER: OnceLock<JobThread> = OnceLock::new();
const SPAWNER_NAME: &str = "spawner";
/// The stack of the thread that does the work of the main thread, as large as that usually has.
const MAIN_STACK: usize = 8 << 20;

/// Does `work` on a thread of its own, while the calling one, which has to be the main thread,
/// starts children. Blocks.
///
/// # Errors
/// Fails if the system refuses the thread, or `work` panicked.
pub fn start_on_main_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let (spawner, jobs) = JobThread::calling(SPAWNER_NAME);
    if SPAWNER.set(spawner).is_err() {
        return Err(io::Error::other("children were started before"));
    }
    thread::scope(|scope| {
        let work = || {
            // Also after a panic, so that the main thread does not wait for ever.
            let _end = EndOfStarts;
            work()
        };
        let builder = thread::Builder::new().name("main-work".to_owned());
        let working = builder.stack_size(MAIN_STACK).spawn_scoped(scope, work)?;
        jobs.run();
        working
            .join()
            .map_err(|_| io::Error::other("the main work panicked"))
    })
}

/// Ends the starts on the main thread on drop.
struct EndOfStarts;

impl Drop for EndOfStarts {
    fn drop(&mut self) {
        if let Some(spawner) = SPAWNER.get() {
            spawner.end();
        }
    }
}

/// Runs `start` on the thread that starts all children. If the caller has stopped waiting, its
/// result is passed to `on_abandoned`.
pub(in crate::system::process) async fn on_spawner<T: Send + 'static>(
    start: impl FnOnce() -> T + Send + 'static,
    on_abandoned: impl FnOnce(T) + Send + 'static,
) -> io::Result<T> {
    let spawner = SPAWNER.get_or_init(|| JobThread::start(SPAWNER_NAME));
    spawner.run(start, on_abandoned).await
}

/// Waits until every start that was requested before has succeeded or failed. Those whose caller
/// has stopped waiting are not run any more, or were killed.
///
/// # Errors
/// Fails if the system refuses the thread that starts children.
pub async fn wait_for_starts() -> io::Result<()> {
    on_spawner(|| (), drop).await
}
