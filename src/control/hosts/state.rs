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
//! A host that starts for a session is reserved for it, and is leased when it is ready. A session
//! has one generation of one host: the generation grows when a host is recycled, so that what was
//! issued for one session is never valid for the next.

use crate::api::ids::BrowserId;

/// The phase of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Chromium does not respond yet.
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
        }
    }

    /// Returns the host after `event` and the actions that follow.
    pub fn apply(&self, event: Event) -> Result<(HostLife, Vec<Action>), ImpossibleEvent> {
        let mut next = self.clone();
        let actions = match (self.state, &event) {
            (State::Starting, Event::Started { generation }) if *generation > self.generation => {
                next.generation = *generation;
                match self.session {
                    Some(_) => next.enter(State::Leased),
                    None => next.enter_or_retire(State::Ready),
                }
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
            // When it returns, the session could be confused with the next one: neither knows its
            // generation.
            (State::Starting, Event::Missed) if self.session.is_some() => {
                let mut actions = next.end_session();
                actions.extend(next.enter(State::Retiring));
                actions
            }
            (State::Starting | State::Ready | State::Leased | State::Recycling, Event::Missed) => {
                next.lose_session(State::Lost)
            }
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

    /// Enters the state, unless the host gets no further session.
    fn enter_or_retire(&mut self, state: State) -> Vec<Action> {
        match self.is_draining {
            true => self.enter(State::Retiring),
            false => self.enter(state),
        }
    }

    fn enter(&mut self, state: State) -> Vec<Action> {
        self.state = state;
        match state {
            State::Recycling => vec![Action::Recycle {
                generation: self.generation,
            }],
            State::Retiring => vec![Action::Stop],
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
