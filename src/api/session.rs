//! Sessions of an agent: one tenancy after another.

use deserr::Deserr;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::replays::Replay;

/// The current session of an agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionStatus {
    /// The number of the session. It grows with each session of the agent.
    pub generation: u64,
    /// Whether the next session is prepared: `off`, `starting` or `ready`.
    pub spare: SpareState,
    /// The effects of the session that outlive it. See the receipt.
    pub tainted_by: Vec<Taint>,
    /// Whether the agent takes no further session, and ends when none uses it, to be started again.
    pub restarting: bool,
}

/// The state of the prepared session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpareState {
    /// None is prepared.
    Off,
    /// Its Chromium does not respond yet.
    Starting,
    Ready,
}

/// The session to end.
#[derive(Clone, Copy, Debug, Deserr, ToSchema)]
pub struct EndSession {
    /// The number of the session. Another one than the current session is not ended.
    pub generation: u64,
    /// Whether to respond when nothing of the session is left (the default), or already when no
    /// request reaches it any more.
    #[deserr(default)]
    #[schema(default = true)]
    pub wait: Option<bool>,
}

/// The end of a session: what ended with it, and what is left of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionReceipt {
    /// The number of the session that has ended.
    pub generation: u64,
    /// The number of the session that follows it.
    pub next_generation: u64,
    /// Whether nothing is left of the session: `remaining` and `tainted_by` are empty.
    pub clean: bool,
    /// Milliseconds that the end took.
    pub duration_ms: u64,
    pub terminated: Terminated,
    /// The recordings of the session, which are finished. They are served below
    /// `/sessions/{generation}/replays` until they are deleted.
    pub replays: Vec<Replay>,
    /// The things that should have ended with the session, but were found after its end.
    pub remaining: Vec<Remaining>,
    /// The effects of the session that outlive it.
    pub tainted_by: Vec<Taint>,
}

/// A session that has ended and has recordings.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndedSession {
    pub generation: u64,
    /// The recordings in the order in which they were started.
    pub replays: Vec<Replay>,
}

/// The things that were running when a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Terminated {
    /// Whether Chromium was running.
    pub chromium: bool,
    /// Number of client processes.
    pub processes: usize,
    /// Number of DevTools clients.
    pub devtools_clients: usize,
    /// Number of directory watches.
    pub watches: usize,
}

/// A thing that should have ended with a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remaining {
    pub kind: RemainingKind,
    /// The process id, the path, or a description of anything else.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemainingKind {
    /// A process of a user of the session.
    Process,
    /// A client process, or one that it has started, could not be killed.
    ClientProcess,
    /// A file or directory.
    File,
    /// System V shared memory, semaphores or a message queue of a user of the session.
    Ipc,
    /// Work of the agent for the session that did not stop in time.
    Task,
}

/// An effect of a session that outlives it. The host should be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// A program ran as a user that the session does not have alone: the agent's, or another one
    /// that a request named. It can write outside the session's directories.
    Program,
    /// A file outside the session's directories was created, changed or removed.
    File,
}
