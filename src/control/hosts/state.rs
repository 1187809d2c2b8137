//! A host's life as a pure state machine: which events are possible, and what follows from them.
//!
//! ```text
//! Starting ──▶ Ready ──Claim──▶ Leased ──Release──▶ Recycling ──Recycled──▶ Ready, next generation
//!    │           │                │                    │
//!    │           │ Drain          │ Release, draining  │ NotRecycled, or draining
//!    └───────────┴────────────────┴────────────────────┴──▶ Retiring ──Stopped──▶ Gone
//!
//! Starting, Ready, Leased, Recycling ──Missed──▶ Lost ──Returned──▶ Recycling, or Starting again
//! ```
//!
//! While an agent is to be started again, its host is Starting where it would be Ready: from Ready
//! at once, or after Recycled.
//!
//! A host that starts for a session is reserved for it, and is leased when it is ready. A session
//! has one generation of one host: the generation grows when a host is recycled, so that what was
//! issued for one session is never valid for the next.

use chrono::TimeDelta;

use crate::api::ids::BrowserId;

/// The time in which a host whose agent is started again is expected to be ready.
pub const RESTART_TIMEOUT: TimeDelta = TimeDelta::minutes(2);

/// The phase of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Chromium does not respond yet, or the agent is about to start again.
    Starting,
    /// No session uses the host, and nothing has used its Chromium.
    Ready,
    /// The host runs a session.
    Leased,
    /// A session has ended, and the agent replaces what it used.
    Recycling,
    /// The host does not report any more. It may return.
    Lost,
    /// The host is being stopped.
    Retiring,
    /// The host is stopped. This state is final.
    Gone,
}

impl State {
    /// Returns whether the agent of the host is expected to run, and to get sessions.
    fn has_agent(self) -> bool {
        matches!(
            self,
            State::Starting | State::Ready | State::Leased | State::Recycling
        )
    }
}

/// A host, as far as its life is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLife {
    pub state: State,
    /// The number of the agent's session.
    pub generation: u64,
    /// The session that the host is reserved for or leased to.
    pub session: Option<BrowserId>,
    /// Whether the host ends with its session instead of getting another one.
    pub is_draining: bool,
    /// Whether the agent takes no session until it has started again.
    pub is_restarting: bool,
}

/// An event in the life of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Chromium responds, in this generation.
    Started { generation: u64 },
    /// A session takes the host.
    Claim(BrowserId),
    /// The session has ended.
    Release(BrowserId),
    /// The agent continues with this generation, and nothing of the one before is left.
    Recycled { generation: u64 },
    /// The agent has found something of the session of this generation after its end, or did not
    /// respond.
    NotRecycled { generation: u64 },
    /// The host gets no further session.
    Drain,
    /// The agent ends when no session uses it, to be started again.
    RestartBegins,
    /// The agent has started again.
    RestartEnds,
    /// The host has not reported in time.
    Missed,
    /// A lost host reports again.
    Returned,
    /// The host is stopped.
    Stopped,
}

/// An action that follows from an event. Actions run in the order in which they are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// End the session, because it has lost its host.
    EndSession(BrowserId),
    /// Have the agent end the session of this generation, then apply [`Event::Recycled`] or
    /// [`Event::NotRecycled`].
    Recycle { generation: u64 },
    /// Stop the host, then apply [`Event::Stopped`].
    Stop,
}

/// An event that is impossible in the current state. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} is impossible for a host in state {:?}", .life.state)]
pub struct ImpossibleEvent {
    pub life: HostLife,
    pub event: Event,
}

impl HostLife {
    /// Returns a host that starts, reserved for `session` if there is one.
    pub fn starting(session: Option<BrowserId>) -> HostLife {
        HostLife {
            state: State::Starting,
            generation: 0,
            session,
            is_draining: false,
            is_restarting: false,
        }
    }

    /// Returns the host after `event` and the actions that follow.
    pub fn apply(&self, event: Event) -> Result<(HostLife, Vec<Action>), ImpossibleEvent> {
        let mut next = self.clone();
        let actions = match (self.state, &event) {
            // An agent that has started again continues with its generation.
            (State::Starting, Event::Started { generation })
                if *generation >= self.generation.max(1) && !self.is_restarting =>
            {
                next.start(*generation)
            }
            (State::Ready, Event::Claim(session)) => {
                next.session = Some(session.clone());
                next.enter(State::Leased)
            }
            (State::Leased, Event::Release(session)) if self.is_of(session) => {
                next.session = None;
                next.enter_or_retire(State::Recycling)
            }
            // The start is not worth waiting for.
            (State::Starting, Event::Release(session)) if self.is_of(session) => {
                next.session = None;
                next.enter(State::Retiring)
            }
            (State::Recycling, Event::Recycled { generation }) if *generation > self.generation => {
                next.generation = *generation;
                next.enter_or_retire(State::Ready)
            }
            (State::Recycling, Event::NotRecycled { generation })
                if *generation == self.generation =>
            {
                next.enter(State::Retiring)
            }
            (State::Ready | State::Lost, Event::Drain) => {
                next.is_draining = true;
                next.enter(State::Retiring)
            }
            (State::Starting | State::Leased | State::Recycling, Event::Drain) => {
                next.is_draining = true;
                Vec::new()
            }
            (state, Event::RestartBegins) if state.has_agent() => next.begin_restart(),
            (state, Event::RestartEnds) if state.has_agent() || state == State::Lost => {
                next.is_restarting = false;
                Vec::new()
            }
            // When it returns, the session could be confused with the next one: neither knows its
            // generation.
            (State::Starting, Event::Missed) if self.session.is_some() => {
                let mut actions = next.end_session();
                actions.extend(next.enter(State::Retiring));
                actions
            }
            (state, Event::Missed) if state.has_agent() => next.lose_session(State::Lost),
            // Nothing ran there yet.
            (State::Lost, Event::Returned) if self.generation == 0 => next.enter(State::Starting),
            // Whatever ran there, nothing of it may reach the next session.
            (State::Lost, Event::Returned) => next.enter(State::Recycling),
            (state, Event::Stopped) if state != State::Gone => next.lose_session(State::Gone),
            _ => {
                let life = self.clone();
                return Err(ImpossibleEvent { life, event });
            }
        };
        Ok((next, actions))
    }

    fn is_of(&self, session: &BrowserId) -> bool {
        self.session.as_ref() == Some(session)
    }

    /// Leases the host to the session that it is reserved for, or makes it ready.
    fn start(&mut self, generation: u64) -> Vec<Action> {
        self.generation = generation;
        match self.session {
            Some(_) => self.enter(State::Leased),
            None => self.enter_or_retire(State::Ready),
        }
    }

    fn begin_restart(&mut self) -> Vec<Action> {
        self.is_restarting = true;
        match self.state {
            State::Ready => self.enter(State::Starting),
            _ => Vec::new(),
        }
    }

    /// Enters the state, unless the host gets no further session, or none until its agent has
    /// started again.
    fn enter_or_retire(&mut self, state: State) -> Vec<Action> {
        match (self.is_draining, self.is_restarting, state) {
            (true, ..) => self.enter(State::Retiring),
            (false, true, State::Ready) => self.enter(State::Starting),
            _ => self.enter(state),
        }
    }

    fn enter(&mut self, state: State) -> Vec<Action> {
        self.state = state;
        match state {
            State::Recycling => vec![Action::Recycle {
                generation: self.generation,
            }],
            State::Retiring => {
                self.is_restarting = false;
                vec![Action::Stop]
            }
            _ => Vec::new(),
        }
    }

    /// Enters the state, in which the host has no session.
    fn lose_session(&mut self, state: State) -> Vec<Action> {
        self.state = state;
        self.end_session()
    }

    fn end_session(&mut self) -> Vec<Action> {
        let session = self.session.take();
        session.map(Action::EndSession).into_iter().collect()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
