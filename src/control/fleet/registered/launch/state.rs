//! A launch's life as a pure state machine: which events are possible, and what they change.
//!
//! ```text
//! Requested ──Started──▶ Launching ──Created──▶ Launched ──JoinTimedOut, HostEnded──┐
//!     │                    │    └──Failed, joined──▲                                ▼
//!     │                    └───────Failed────────────────────────────────────▶ Destroying
//!     └──Withdrawn──▶ Gone ◀──────────────────────────Destroyed─────────────────────┘
//! ```
//!
//! From `Launching` on, the engine may have a machine with the id of the launch, until the destroy
//! command has succeeded: nothing else ends a launch that was started. The host may join before the
//! launch command has exited.

use super::EngineId;
use crate::api::ids::HostId;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// The phase of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No command was run, so that there is no machine.
    Requested,
    /// The launch command runs, or was interrupted.
    Launching,
    /// The machine runs. Its host has joined, or will.
    Launched,
    /// The destroy command is run until it succeeds.
    Destroying,
    /// The machine is destroyed, or was never launched. This state is final.
    Gone,
}

impl State {
    pub const ALL: [State; 5] = [
        State::Requested,
        State::Launching,
        State::Launched,
        State::Destroying,
        State::Gone,
    ];

    /// Returns the name of the state in the database and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Requested => "requested",
            State::Launching => "launching",
            State::Launched => "launched",
            State::Destroying => "destroying",
            State::Gone => "gone",
        }
    }
}

/// A launch, as far as its life is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchLife {
    pub state: State,
    /// `None` until the launch command has succeeded, and for good if it was interrupted.
    pub engine_id: Option<EngineId>,
    /// The host that has joined with the token of the launch.
    pub host: Option<HostId>,
}

/// An event in the life of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The browsers that needed a host have given up.
    Withdrawn,
    /// The launch command is about to run.
    Started,
    /// The launch command has succeeded.
    Created(EngineId),
    /// The launch command has failed, or was interrupted.
    Failed,
    /// A host has registered with the token of the launch.
    Joined(HostId),
    /// No host has joined in time.
    JoinTimedOut,
    /// The host is gone.
    HostEnded,
    /// The destroy command has succeeded.
    Destroyed,
}

/// An event that is impossible in the current state. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} is impossible for a launch in state {:?}", .life.state)]
pub struct ImpossibleLaunchEvent {
    pub life: LaunchLife,
    pub event: Event,
}

impl LaunchLife {
    pub fn requested() -> LaunchLife {
        LaunchLife {
            state: State::Requested,
            engine_id: None,
            host: None,
        }
    }

    /// Returns a launch whose machine is to be destroyed.
    pub fn destroying(engine_id: Option<EngineId>) -> LaunchLife {
        LaunchLife {
            state: State::Destroying,
            engine_id,
            host: None,
        }
    }

    /// Returns the launch after `event`.
    pub fn apply(&self, event: Event) -> Result<LaunchLife, ImpossibleLaunchEvent> {
        let mut next = self.clone();
        match (self.state, &event) {
            (State::Requested, Event::Withdrawn) => next.state = State::Gone,
            (State::Requested, Event::Started) => next.state = State::Launching,
            (State::Launching, Event::Created(id)) => {
                next.engine_id = Some(id.clone());
                next.state = State::Launched;
            }
            // Another process has given up the command, which ran on.
            (State::Launched | State::Destroying, Event::Created(id))
                if self.engine_id.is_none() =>
            {
                next.engine_id = Some(id.clone());
            }
            // The machine works, and may have a session.
            (State::Launching, Event::Failed) if self.host.is_some() => {
                next.state = State::Launched;
            }
            (State::Launching, Event::Failed) => next.state = State::Destroying,
            (State::Launching | State::Launched, Event::Joined(host)) if self.host.is_none() => {
                next.host = Some(host.clone());
            }
            (State::Launched, Event::JoinTimedOut) if self.host.is_none() => {
                next.state = State::Destroying;
            }
            (State::Launched, Event::HostEnded) if self.host.is_some() => {
                next.state = State::Destroying;
            }
            (State::Destroying, Event::Destroyed) => next.state = State::Gone,
            _ => {
                let life = self.clone();
                return Err(ImpossibleLaunchEvent { life, event });
            }
        }
        Ok(next)
    }
}
