//! The life of a recording as a pure state machine: where its file is.
//!
//! ```text
//! Recording ──Ended──▶ Finished ──Fetched──▶ Stored
//!     │                   │                    │
//!     └──────Missing──────┴──────Missing───────┴──▶ Lost ──Fetched──▶ Stored
//! ```

/// The state of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// The agent is recording it, as far as is known.
    Recording,
    /// The recording is finished. Only the agent, or the directory of its stopped host, has the
    /// file.
    Finished,
    /// The blob store has the file.
    Stored,
    /// The file does not exist, or no longer.
    Lost,
}

/// An event in the life of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The agent, or the directory of its stopped host, shows that the recording is finished.
    Ended,
    /// The complete file was put into the blob store.
    Fetched,
    /// The file is not where it was, and no retry will find it.
    Missing,
}

impl State {
    /// Returns the state after `event`, or `None` if the event changes nothing.
    #[must_use]
    pub fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Recording, Event::Ended) => Some(State::Finished),
            (State::Recording | State::Finished | State::Lost, Event::Fetched) => {
                Some(State::Stored)
            }
            (State::Recording | State::Finished | State::Stored, Event::Missing) => {
                Some(State::Lost)
            }
            (State::Finished | State::Stored | State::Lost, Event::Ended)
            | (State::Stored, Event::Fetched)
            | (State::Lost, Event::Missing) => None,
        }
    }

    /// Returns whether the file is still to be fetched.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, State::Recording | State::Finished)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn recording_is_finished_then_stored() {
        let finished = State::Recording.after(Event::Ended);
        assert_eq!(finished, Some(State::Finished));
        assert_eq!(State::Finished.after(Event::Fetched), Some(State::Stored));
    }

    proptest! {
        /// After every sequence of events, a recording is stored if and only if it was fetched
        /// and not missing since. It never records again, and repeated events change nothing.
        #[test]
        fn state_is_consistent_after_every_sequence_of_events(events in proptest::collection::vec(
            prop_oneof![Just(Event::Ended), Just(Event::Fetched), Just(Event::Missing)], 0..30
        )) {
            let mut state = State::Recording;
            let mut last = None;
            for event in events {
                let next = state.after(event).unwrap_or(state);
                prop_assert_eq!(next.after(event), None);
                prop_assert!(next != State::Recording);
                if event != Event::Ended {
                    last = Some(event);
                }
                prop_assert_eq!(next == State::Stored, last == Some(Event::Fetched));
                prop_assert_eq!(next == State::Lost, last == Some(Event::Missing));
                state = next;
            }
        }
    }
}
