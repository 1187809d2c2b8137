//! The history of a run: the calls of all clients with their outcomes, and the kills.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

/// A monotonic time, as the duration since the start of the run.
pub type Time = Duration;

/// A project of the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestProject {
    /// The project of most clients, which also share a pool.
    Default,
    /// The project of a client which is alone in it.
    Other,
}

impl TestProject {
    pub const ALL: [TestProject; 2] = [TestProject::Default, TestProject::Other];

    pub fn name(self) -> &'static str {
        match self {
            TestProject::Default => "default",
            TestProject::Other => "other",
        }
    }

    pub fn of_name(name: &str) -> Option<TestProject> {
        let mut all = TestProject::ALL.into_iter();
        all.find(|project| project.name() == name)
    }
}

/// A call of a client, from its invocation to the time at which the client knew its outcome.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: usize,
    pub project: TestProject,
    pub invoked: Time,
    pub returned: Time,
    pub operation: Operation,
    pub outcome: Outcome,
}

/// A request, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create a session with a name that no other call uses.
    Create {
        name: String,
        idle_timeout: Duration,
    },
    /// Look up the session of a creation without a definite outcome.
    Find { name: String },
    /// Read, change or use a session.
    Use { session: String },
    /// Read where a session runs, and the markers in it. Its own were planted before.
    Observe { session: String },
    /// Fill the page in front of a session with a login.
    Fill {
        session: String,
        login: String,
        /// The number of the control process that the request was sent to.
        process: usize,
        request_id: String,
    },
    /// List the active sessions.
    List,
    /// End a session.
    Delete { session: String },
}

/// The outcome of a call, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The session was created or found.
    Session(String),
    /// The call had its effect.
    Done,
    Observed(Observation),
    Listed(BTreeSet<String>),
    /// No such session exists.
    NotFound,
    /// The call was refused with this status and had no effect.
    Refused(u16),
    /// The call may have an effect, now or later: it failed, its connection broke, or the client
    /// left before the response.
    Unknown,
    /// The server did not respond within the time limit of the clients.
    NoResponse,
}

/// Facts that a client has read from inside a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    pub tenancy: Tenancy,
    /// The sessions whose markers are among the browser's cookies.
    pub cookies: BTreeSet<String>,
    /// The sessions whose markers are among the session's files.
    pub files: BTreeSet<String>,
}

/// A value that a page of a session has received from a fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub session: String,
    /// The project of the login.
    pub project: TestProject,
    pub login: String,
    pub value: DeliveredValue,
}

/// The kind of a value that a page has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveredValue {
    UserName,
    Password,
    /// The one-time code of the time step with this number.
    Code(u64),
}

/// A tenancy of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenancy {
    pub host: String,
    pub generation: u64,
}

/// A kind of process that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKind {
    Control,
    Agent,
    Chromium,
    /// The X server of a browser that is not headless.
    Display,
    Renderer,
    /// Another process of Chromium.
    ChromiumHelper,
    ScriptWorker,
    /// A program that a client runs beside its browser.
    ClientProcess,
}

/// A SIGKILL of a process.
#[derive(Clone, Debug)]
pub struct Kill {
    pub kind: ProcessKind,
    /// The host of the process. `None` for control.
    pub host: Option<String>,
    /// Before the signal was sent.
    pub sent: Time,
    /// After the process had ended.
    pub done: Time,
}

/// Collects the history of a run. Clones share it.
#[derive(Clone)]
pub struct Recorder {
    started: Instant,
    started_at: DateTime<Utc>,
    calls: Arc<Mutex<Vec<Call>>>,
    kills: Arc<Mutex<Vec<Kill>>>,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder {
            started: Instant::now(),
            started_at: Utc::now(),
            calls: Arc::default(),
            kills: Arc::default(),
        }
    }

    pub fn now(&self) -> Time {
        self.started.elapsed()
    }

    /// Returns the time of the wall clock at which the run has started.
    pub fn started_at(&self) -> DateTime<Utc> {
        self.started_at
    }

    /// Converts a time of the wall clock, in milliseconds since 1970.
    pub fn time_of(&self, millis: i64) -> Time {
        let millis = millis.saturating_sub(self.started_at.timestamp_millis());
        Time::from_millis(millis.try_into().unwrap_or(0))
    }

    /// Performs a call and records it. If the future is dropped, the outcome is
    /// [`Outcome::Unknown`].
    pub async fn call(
        &self,
        (client, project): (usize, TestProject),
        operation: Operation,
        request: impl Future<Output = Outcome>,
    ) -> Outcome {
        let now = self.now();
        let mut pending = PendingCall {
            recorder: self,
            call: Some(Call {
                client,
                project,
                invoked: now,
                returned: now,
                operation,
                outcome: Outcome::Unknown,
            }),
        };
        let outcome = request.await;
        pending.finish(outcome.clone());
        outcome
    }

    pub fn kill(&self, kill: Kill) {
        self.kills.lock().push(kill);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    pub fn kills(&self) -> Vec<Kill> {
        self.kills.lock().clone()
    }
}

/// A call that is recorded when it is finished or dropped.
struct PendingCall<'a> {
    recorder: &'a Recorder,
    call: Option<Call>,
}

impl PendingCall<'_> {
    fn finish(&mut self, outcome: Outcome) {
        if let Some(mut call) = self.call.take() {
            call.returned = self.recorder.now();
            call.outcome = outcome;
            self.recorder.calls.lock().push(call);
        }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.finish(Outcome::Unknown);
    }
}
