//! A browser's life as a pure state machine: what may apply next, and what has to be done about it.
//!
//! ```text
//! creating ──ready──▶ publishing ──published──▶ active ──end asked / idle / host lost──▶ deleting ──host stopped──▶ deleted
//!     └──failed / abandoned──────┴──not published──▶ discarded (no trace is kept: no client ever saw it)
//! ```

/// Where a browser stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its host is starting; no client knows it yet.
    Creating,
    /// It answers; that is being recorded.
    Publishing,
    /// It answers, and clients find it.
    Active,
    /// It is gone for clients; its host is still being stopped.
    Deleting(EndReason),
    /// Nothing but the record is left.
    Deleted(EndReason),
    /// It never came up; the record is removed as well.
    Discarded,
}

/// Why a browser ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// A client deleted it.
    Deleted,
    /// Nobody used it for its `timeout_seconds`.
    Idle,
    /// Its host went away and did not come back.
    Gone,
}

/// What happens to a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its DevTools answer.
    Ready,
    /// It is recorded as active.
    Published,
    /// That could not be recorded.
    NotPublished,
    /// Its host did not come up.
    StartFailed,
    /// The client that asked for it went away.
    Abandoned,
    /// Somebody wants it gone.
    End(EndReason),
    /// Nothing of its host is left.
    HostStopped,
}

/// What has to be done after an event, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Let clients find it.
    Show,
    /// Hide it from clients and record why it ended.
    Withdraw(EndReason),
    /// Fetch what its agent has recorded, as far as that takes no longer than it may.
    SaveReplays,
    /// Stop its host and remove what is left of it; then say `HostStopped`.
    StopHost,
    /// Record that nothing is left.
    Close,
    /// Remove the record.
    Forget,
}

/// The event cannot apply in this state; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot apply to a browser that is {state:?}")]
pub struct Refused {
    pub state: State,
    pub event: Event,
}

impl State {
    /// The state after `event`, and what has to be done.
    pub fn apply(self, event: Event) -> Result<(State, &'static [Action]), Refused> {
        use Action::{Close, Forget, SaveReplays, Show, StopHost, Withdraw};
        use EndReason::{Deleted, Gone, Idle};
        Ok(match (self, event) {
            (State::Creating, Event::Ready) => (State::Publishing, &[]),
            (State::Publishing, Event::Published) => (State::Active, &[Show]),
            (State::Creating, Event::StartFailed | Event::Abandoned)
            | (State::Publishing, Event::NotPublished) => {
                // The name is free again at once; the host is found by its folder should we die here.
                (State::Discarded, &[Forget, StopHost])
            }
            (State::Active, Event::End(reason)) => (
                State::Deleting(reason),
                match reason {
                    Deleted => &[Withdraw(Deleted), SaveReplays, StopHost],
                    Idle => &[Withdraw(Idle), SaveReplays, StopHost],
                    // There is no agent to ask, or no time.
                    Gone => &[Withdraw(Gone), StopHost],
                },
            ),
            (State::Deleting(reason), Event::HostStopped) => (State::Deleted(reason), &[Close]),
            (State::Discarded, Event::HostStopped) => (State::Discarded, &[]),
            (state, event) => return Err(Refused { state, event }),
        })
    }

    /// Whether clients find it.
    pub fn is_visible(self) -> bool {
        self == State::Active
    }

    /// Whether nothing can apply to it any more.
    pub fn is_final(self) -> bool {
        matches!(self, State::Deleted(_) | State::Discarded)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Ready),
            Just(Event::Published),
            Just(Event::NotPublished),
            Just(Event::StartFailed),
            Just(Event::Abandoned),
            Just(Event::End(EndReason::Deleted)),
            Just(Event::End(EndReason::Idle)),
            Just(Event::End(EndReason::Gone)),
            Just(Event::HostStopped),
        ]
    }

    #[test]
    fn a_browser_lives_and_is_deleted() {
        let (state, todo) = State::Creating.apply(Event::Ready).unwrap();
        assert_eq!((state, todo), (State::Publishing, &[][..]));
        let (state, todo) = state.apply(Event::Published).unwrap();
        assert_eq!((state, todo), (State::Active, &[Action::Show][..]));
        let (state, todo) = state.apply(Event::End(EndReason::Deleted)).unwrap();
        assert_eq!(
            todo,
            &[
                Action::Withdraw(EndReason::Deleted),
                Action::SaveReplays,
                Action::StopHost
            ]
        );
        let (state, todo) = state.apply(Event::HostStopped).unwrap();
        assert_eq!(
            (state, todo),
            (State::Deleted(EndReason::Deleted), &[Action::Close][..])
        );
    }

    #[test]
    fn a_failed_start_leaves_nothing() {
        for event in [Event::StartFailed, Event::Abandoned] {
            let (state, todo) = State::Creating.apply(event).unwrap();
            assert_eq!(state, State::Discarded);
            assert_eq!(todo, &[Action::Forget, Action::StopHost]);
        }
        let (state, todo) = State::Publishing.apply(Event::NotPublished).unwrap();
        assert_eq!(state, State::Discarded);
        assert_eq!(todo, &[Action::Forget, Action::StopHost]);
    }

    proptest! {
        /// Whatever happens in whatever order: the first end wins, a host is stopped exactly once, nothing is
        /// published twice, and an ended browser never comes back.
        #[test]
        fn every_history_is_sound(events in proptest::collection::vec(event(), 0..40)) {
            let mut state = State::Creating;
            let (mut published, mut withdrawn, mut stops) = (0, 0, 0);
            for event in events {
                let before = state;
                match state.apply(event) {
                    Ok((after, actions)) => {
                        prop_assert!(!matches!(before, State::Deleted(_)));
                        for action in actions {
                            match action {
                                Action::Show => published += 1,
                                Action::Withdraw(_) => withdrawn += 1,
                                Action::SaveReplays => prop_assert_eq!(stops, 0),
                                Action::StopHost => stops += 1,
                                Action::Close | Action::Forget => prop_assert!(after.is_final()),
                            }
                        }
                        if let State::Deleting(reason) = before {
                            prop_assert_eq!(after, State::Deleted(reason));
                        }
                        state = after;
                    }
                    Err(refused) => prop_assert_eq!(refused, Refused { state: before, event }),
                }
                prop_assert_eq!(state.is_visible(), published == 1 && withdrawn == 0);
                prop_assert!(published <= 1 && withdrawn <= published && stops <= 1);
                prop_assert_eq!(stops == 1, matches!(state, State::Deleting(_) | State::Deleted(_) | State::Discarded));
            }
        }
    }
}
