//! Where a recording is, as a pure state machine.
//!
//! ```text
//! recording ──ended──▶ finished ──fetched──▶ kept
//!     │                   │                   │
//!     └──────missing──────┴──────missing──────┴──▶ lost ──fetched──▶ kept
//! ```

/// Where a recording stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// An agent is recording it, as far as is known.
    Recording,
    /// It has ended; an agent, or what one has left, has it alone.
    Finished,
    /// It is in the blob store.
    Kept,
    /// Neither has it.
    Lost,
}

/// What happens to a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its agent, or what one has left, says that it has ended.
    Ended,
    /// It has come into the blob store, whole.
    Fetched,
    /// It is not where it was last, and will not come back by itself.
    Missing,
}

impl State {
    /// The state after `event`; `None` where that changes nothing.
    #[must_use]
    pub fn after(self, event: Event) -> Option<State> {
        match (self, event) {
            (State::Recording, Event::Ended) => Some(State::Finished),
            (State::Recording | State::Finished | State::Lost, Event::Fetched) => Some(State::Kept),
            (State::Recording | State::Finished | State::Kept, Event::Missing) => Some(State::Lost),
            (State::Finished | State::Kept | State::Lost, Event::Ended)
            | (State::Kept, Event::Fetched)
            | (State::Lost, Event::Missing) => None,
        }
    }

    /// Whether there is something yet to be fetched.
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
    fn a_recording_ends_and_is_kept() {
        let finished = State::Recording.after(Event::Ended);
        assert_eq!(finished, Some(State::Finished));
        assert_eq!(State::Finished.after(Event::Fetched), Some(State::Kept));
    }

    proptest! {
        /// Whatever happens in whatever order and how often: it is kept exactly where it has been fetched and has not gone missing
        /// since, it never records again, and telling the same again changes nothing.
        #[test]
        fn every_history_is_sound(events in proptest::collection::vec(
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
                prop_assert_eq!(next == State::Kept, last == Some(Event::Fetched));
                prop_assert_eq!(next == State::Lost, last == Some(Event::Missing));
                state = next;
            }
        }
    }
}
