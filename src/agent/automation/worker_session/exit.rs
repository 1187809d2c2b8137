//! Ending a session: quiesces the browser, drains the worker's output, reports, reaps the process.

use std::{mem, os::unix::process::ExitStatusExt, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use super::{
    WorkerSession,
    job::{Outcome, Run},
    stage::Stage,
};
use crate::{
    agent::automation::relay::{RelayAction, Violation},
    system::script::worker::{Events, Exit, FromWorker, RunOutcome},
};

/// The longest wait for a dead worker's last commands to complete, before the caller gets its
/// report. If they do not complete, the code that they run in pages is stopped, and the wait is
/// repeated once.
const QUIESCE_TIMEOUT: Duration = Duration::from_millis(150);
/// The longest time for which a killed worker's output is read. Its end of the socket closes when
/// it dies.
const DRAIN_OUTPUT_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest wait of a report for the exit status of a dead process.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ends.
#[derive(Debug)]
pub(super) enum ExitReason {
    /// The worker's handle was dropped, or the caller of its script has gone away.
    Unneeded,
    /// The script has finished, and the worker gets no other one.
    Finished(RunOutcome),
    TimedOut,
    BrowserGone,
    Shutdown,
    /// The worker closed its end of the socket.
    WorkerClosed,
    /// The worker reported that it cannot continue.
    WorkerFailed(String),
    /// The worker broke the protocol or a bound.
    Killed(String),
}

impl From<Violation> for ExitReason {
    fn from(violation: Violation) -> Self {
        ExitReason::Killed(violation.to_string())
    }
}

impl WorkerSession {
    /// Closes the connection to the browser, reports to the caller, reaps the process, and removes
    /// the scratch directory. The report comes after the last command of the script has taken
    /// effect in the browser.
    pub(super) async fn shut_down(mut self, reason: ExitReason) {
        if !matches!(reason, ExitReason::Finished(_)) {
            self.killer.kill();
        }
        drop(self.requests.cancel_all());
        // Commands that Chromium does not have yet are dropped.
        for text in self.to_browser.clear() {
            self.relay.cancel_unsent(&text);
        }
        if !matches!(reason, ExitReason::BrowserGone) {
            self.quiesce().await;
        }
        self.browser_writer.abort();
        let _ = (&mut self.browser_writer).await;
        self.finish(reason).await;
    }

    /// Ends a session whose connection to the browser is no longer used.
    async fn finish(self, reason: ExitReason) {
        let Self {
            receiver,
            mut stage,
            mut events,
            mut worker_writer,
            reap_guard,
            killer,
            relay,
            mut deliveries,
            scratch,
            ..
        } = self;
        drop(receiver);
        let reason = match reason {
            // The output is complete, so the caller need not wait for the process.
            ExitReason::Finished(result) => {
                if let Stage::Running { run, .. } = mem::replace(&mut stage, Stage::Idle) {
                    run.report(Outcome::from(result), false);
                }
                killer.kill();
                ExitReason::Unneeded
            }
            reason => reason,
        };
        if let Stage::Running { run, .. } = &mut stage {
            drain_output(&mut events, run).await;
        }
        drop(reap_guard);
        let outcome = outcome_of(reason, &mut worker_writer).await;
        if matches!(stage, Stage::Attaching(Some(_))) {
            tracing::debug!(?relay, ?outcome, "script worker ended before it attached");
        }
        report_outcome(stage, outcome);
        if !worker_writer.is_finished() {
            let _ = worker_writer.await;
        }
        // A delivery in progress must end before its directory is removed.
        while deliveries.join_next().await.is_some() {}
        scratch.remove().await;
    }

    /// Waits until the dead worker's commands have completed. Stops their code in pages that it
    /// keeps busy.
    async fn quiesce(&mut self) {
        if !self.relay.quiesce(Instant::now()) {
            return;
        }
        self.read_until_quiet().await;
        if !self.relay.is_quiet() {
            self.relay.terminate();
            self.read_until_quiet().await;
        }
    }

    async fn read_until_quiet(&mut self) {
        let deadline = Instant::now() + QUIESCE_TIMEOUT;
        while !self.relay.is_quiet() {
            for action in self.relay.take_actions() {
                if let RelayAction::ToBrowser(text) = action {
                    self.queue_for_browser(text);
                }
            }
            match timeout_at(deadline, self.receiver.next()).await {
                Ok(Ok(text)) => {
                    if self.relay.from_browser(text, Instant::now()).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

pub(super) async fn outcome_of(reason: ExitReason, process: &mut JoinHandle<Exit>) -> Outcome {
    match reason {
        ExitReason::TimedOut => Outcome::TimedOut,
        ExitReason::BrowserGone => Outcome::BrowserGone,
        ExitReason::Finished(_) | ExitReason::Shutdown | ExitReason::Unneeded => Outcome::Stopped,
        ExitReason::WorkerFailed(reason) | ExitReason::Killed(reason) => Outcome::Crashed(reason),
        ExitReason::WorkerClosed => Outcome::Crashed(match timeout(REAP_TIMEOUT, process).await {
            Ok(Ok(exit)) => describe_exit(&exit),
            _ => "the script's process ended".to_owned(),
        }),
    }
}

fn report_outcome(stage: Stage, outcome: Outcome) {
    match stage {
        Stage::Attaching(Some(attached)) => {
            let _ = attached.send(Err(outcome.describe()));
        }
        Stage::Settling { run, .. } | Stage::Running { run, .. } => run.report(outcome, false),
        Stage::Idle | Stage::Attaching(None) => {
            if let Outcome::Crashed(reason) = &outcome {
                tracing::warn!(%reason, "idle script worker ended");
            }
        }
    }
}

/// Reads the output that the worker wrote before it was killed.
pub(super) async fn drain_output(events: &mut Events, run: &mut Run) {
    let read = async {
        while let Ok(Some(event)) = events.next().await {
            match event {
                FromWorker::Stdout(bytes) => run.stdout.push(&bytes),
                FromWorker::Stderr(bytes) => run.stderr.push(&bytes),
                _ => {}
            }
        }
    };
    let _ = timeout(DRAIN_OUTPUT_TIMEOUT, read).await;
}

pub(super) fn describe_exit(exit: &Exit) -> String {
    let ending = match exit.status.map(|status| (status.signal(), status.code())) {
        // The kernel kills processes to reclaim memory.
        Some((Some(signal), _)) => {
            format!("was ended by signal {signal}; it may have run out of memory")
        }
        Some((None, Some(code))) => format!("ended with status {code}"),
        Some((None, None)) | None => "ended".to_owned(),
    };
    let diagnostics = &exit.diagnostics;
    tracing::warn!(ending, diagnostics, "script process ended by itself");
    if exit.is_out_of_memory() {
        return "out of memory: the script's process needed more than it may have".to_owned();
    }
    format!("the script's process {ending}")
}
