//! The session of a script that does not use the browser: a worker that is not attached to it.
//!
//! ```text
//! fork ── Ready ── Prepare, Run ──▶ output, Done ──▶ report ── kill, reap
//! ```

use std::future::pending;

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use super::{
    ATTACH_TIMEOUT, StartError,
    exit::{ExitReason, describe_exit, drain_output, outcome_of},
    job::{Job, Outcome, Report, Run},
};
use crate::{
    agent::automation::scratch::{Scratch, ScratchRoot},
    shutdown::Shutdown,
    system::script::{
        template::{ForkRequest, WorkerTemplate},
        worker::{Events, Exit, FromWorker, Page, RunRequest, Script, ScriptWorker, ToWorker},
    },
};

/// A worker without a connection to the browser. Dropping it kills the process.
#[derive(Debug)]
pub(in crate::agent::automation) struct UnattachedWorker {
    process: ScriptWorker,
    events: Events,
    scratch: Scratch,
}

impl UnattachedWorker {
    /// Forks a worker, and waits until it is ready for a script.
    pub(in crate::agent::automation) async fn start(
        template: &WorkerTemplate,
        scratch: &ScratchRoot,
    ) -> Result<Self, StartError> {
        let scratch = scratch.create().map_err(StartError::Scratch)?;
        let request = ForkRequest {
            scratch: scratch.name(),
            attaches: false,
        };
        let (process, events) = template.fork(request).await?;
        let mut worker = UnattachedWorker {
            process,
            events,
            scratch,
        };
        let first = timeout(ATTACH_TIMEOUT, worker.events.next()).await;
        match first.map_err(|_| StartError::Timeout)? {
            Ok(Some(FromWorker::Ready)) => Ok(worker),
            _ => Err(StartError::Ended(describe_exit(&worker.end().await))),
        }
    }

    pub(in crate::agent::automation) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// Waits until the process has ended. The future does not keep it alive.
    pub(in crate::agent::automation) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.process.ended()
    }

    /// Kills and reaps the process if it has not ended, and releases its scratch directory.
    pub(in crate::agent::automation) async fn end(self) -> Exit {
        let exit = self.process.kill().await;
        release(self.scratch, Some(&exit)).await;
        exit
    }

    /// Runs a script. Dropping the returned future kills it.
    pub(in crate::agent::automation) async fn run(self, job: Job, shutdown: &Shutdown) -> Report {
        let (reply, report) = oneshot::channel();
        let session = UnattachedSession {
            worker: self,
            run: Run::new((job, reply)),
        };
        shutdown.spawn(session.run(shutdown.clone()));
        report.await.unwrap_or_else(|_| Report::not_started())
    }
}

struct UnattachedSession {
    worker: UnattachedWorker,
    run: Run,
}

impl UnattachedSession {
    async fn run(mut self, shutdown: Shutdown) {
        let script = self.run.script();
        let (request, deadline) = self.run.start(Page::Unused);
        let reason = self.serve(script, request, deadline, &shutdown).await;
        self.shut_down(reason).await;
    }

    /// Runs the script until it ends or has to be ended.
    async fn serve(
        &mut self,
        script: Script,
        request: RunRequest,
        deadline: Instant,
        shutdown: &Shutdown,
    ) -> ExitReason {
        let run = &mut self.run;
        let UnattachedWorker {
            process, events, ..
        } = &mut self.worker;
        // The reader reports that the worker has closed its end.
        let write = async {
            if process.send(ToWorker::Prepare(script)).await.is_ok() {
                let _ = process.send(ToWorker::Run(request)).await;
            }
            pending::<()>().await;
        };
        tokio::pin!(write);
        loop {
            tokio::select! {
                () = &mut write => {}
                event = events.next() => match event {
                    Ok(Some(FromWorker::Stdout(bytes))) => run.stdout.push(&bytes),
                    Ok(Some(FromWorker::Stderr(bytes))) => run.stderr.push(&bytes),
                    Ok(Some(FromWorker::Done(result))) => return ExitReason::Finished(*result),
                    Ok(Some(FromWorker::Failed(reason))) => return ExitReason::WorkerFailed(reason),
                    Ok(Some(
                        FromWorker::Cdp(_)
                        | FromWorker::Ready
                        | FromWorker::HttpRequest(..)
                        | FromWorker::HttpCancel(_),
                    )) => {
                        let reason = "the script worker sent a message of an attached worker";
                        return ExitReason::Killed(reason.to_owned());
                    }
                    Ok(None) => return ExitReason::WorkerClosed,
                    Err(error) => return ExitReason::Killed(error.to_string()),
                },
                () = run.reply.closed() => return ExitReason::Unneeded,
                () = shutdown.requested() => return ExitReason::Shutdown,
                () = sleep_until(deadline) => return ExitReason::TimedOut,
            }
        }
    }

    /// Kills and reaps the process, reports to the caller, and releases the scratch directory.
    async fn shut_down(self, reason: ExitReason) {
        let UnattachedWorker {
            process,
            mut events,
            scratch,
        } = self.worker;
        let mut run = self.run;
        let mut process = tokio::spawn(process.kill());
        let exit = match reason {
            // The output is complete, so the caller need not wait for the process.
            ExitReason::Finished(result) => {
                run.report(Outcome::from(result), false);
                process.await.ok()
            }
            reason => {
                drain_output(&mut events, &mut run).await;
                let outcome = outcome_of(reason, &mut process).await;
                run.report(outcome, false);
                match process.is_finished() {
                    true => None,
                    false => process.await.ok(),
                }
            }
        };
        release(scratch, exit.as_ref()).await;
    }
}

/// Keeps the directory for another worker only if its own has certainly ended.
async fn release(scratch: Scratch, exit: Option<&Exit>) {
    match exit.and_then(|exit| exit.status) {
        Some(_) => scratch.release().await,
        None => scratch.remove().await,
    }
}
