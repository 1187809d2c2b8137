//! Jobs of a worker, their outcomes and their reports.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::{sync::oneshot, time::Instant};

use crate::{
    agent::automation::output::Output,
    system::script::worker::{Page, RunOutcome, RunRequest, Script},
};

/// The delay between a script's deadline and killing its worker. The worker stops the script at the
/// deadline by itself and reports where it was; this is for one that does not.
const KILL_DELAY: Duration = Duration::from_millis(400);

/// A job, and the sender of its report.
pub(super) type JobRequest = (Job, oneshot::Sender<Report>);

/// A script for a worker.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) code: String,
    pub(crate) timeout: Duration,
    /// Whether the worker may get another job afterwards.
    pub(crate) keep_worker: bool,
}

impl Job {
    /// Whether the code may use the browser: it contains a name under which a script finds the
    /// browser, or a way around names. An executor's script may have stored a page under another
    /// name.
    pub(crate) fn uses_browser(&self) -> bool {
        const NAMES: [&str; 7] = [
            "page",
            "context",
            "browser",
            "playwright",
            "eval",
            "arguments",
            "\\u",
        ];
        self.keep_worker || NAMES.iter().any(|name| self.code.contains(name))
    }
}

/// The outcome of a script, and its output.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Whether the worker accepts another script.
    pub(crate) reusable: bool,
    /// The time from the script's start to its end.
    pub(crate) duration: Duration,
    /// An additional message for the caller.
    pub(crate) note: Option<String>,
}

/// The outcome of a script.
#[derive(Debug)]
pub(crate) enum Outcome {
    Returned(Option<Box<RawValue>>),
    Threw(String),
    TimedOut,
    /// The process ended by itself or had to be killed, for this reason.
    Crashed(String),
    BrowserGone,
    Stopped,
}

/// A script in progress.
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) reply: oneshot::Sender<Report>,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) received_at: Instant,
    pub(super) started_at: Option<Instant>,
}

impl Report {
    /// Returns the report of a script that no worker has started.
    pub(crate) fn not_started() -> Self {
        Report {
            outcome: Outcome::Crashed(
                "the script worker ended before the script started".to_owned(),
            ),
            stdout: String::new(),
            stderr: String::new(),
            reusable: false,
            duration: Duration::ZERO,
            note: None,
        }
    }
}

impl Run {
    pub(super) fn new((job, reply): JobRequest) -> Self {
        Self {
            job,
            reply,
            stdout: Output::default(),
            stderr: Output::default(),
            received_at: Instant::now(),
            started_at: None,
        }
    }

    /// Returns the script for the worker.
    pub(super) fn script(&self) -> Script {
        Script {
            code: self.job.code.clone(),
            file_name: "script.ts".to_owned(),
        }
    }

    /// Starts the time of the script. Returns the request for the worker, and when to kill it.
    pub(super) fn start(&mut self, page: Page) -> (RunRequest, Instant) {
        let now = Instant::now();
        tracing::debug!(
            settled_micros = self.received_at.elapsed().as_micros(),
            ?page,
            "script started"
        );
        self.started_at = Some(now);
        let timeout = self.job.timeout;
        let request = RunRequest {
            page,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        };
        (request, now + timeout + KILL_DELAY)
    }

    pub(super) fn report(self, outcome: Outcome, reusable: bool) {
        let duration = self.started_at.map_or(Duration::ZERO, |at| at.elapsed());
        // Sending fails if the caller has gone.
        let _ = self.reply.send(Report {
            outcome,
            stdout: self.stdout.into_text(),
            stderr: self.stderr.into_text(),
            reusable,
            duration,
            note: None,
        });
    }
}

impl From<RunOutcome> for Outcome {
    fn from(outcome: RunOutcome) -> Self {
        if outcome.success {
            return Outcome::Returned(outcome.result);
        }
        let error = outcome.error;
        Outcome::Threw(error.unwrap_or_else(|| "the script failed".to_owned()))
    }
}

impl Outcome {
    /// Describes the outcome as the reason why a worker ended.
    pub(super) fn describe(&self) -> String {
        match self {
            Outcome::Threw(reason) | Outcome::Crashed(reason) => reason.clone(),
            Outcome::Returned(..) => "the script worker ended".to_owned(),
            Outcome::TimedOut => "the script worker timed out".to_owned(),
            Outcome::BrowserGone => "the browser went away".to_owned(),
            Outcome::Stopped => "the script worker was stopped".to_owned(),
        }
    }
}
