//! A browser's life as a pure state machine: which events are possible, and what follows from them.
//!
//! ```text
//! Creating ──Ready──▶ Publishing ──Published──▶ Active ──End──▶ Deleting ──HostReleased──▶ Deleted
//!     │                   │
//!     StartFailed,        NotPublished
//!     Abandoned           │
//!     └───────────────────┴──▶ Discarded (the row is deleted: no client has seen the browser)
//! ```
//!
//! Several control processes may know an active browser. The row decides which of them ends it, and
//! the others forget it.

/// The state of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The host is starting. No client knows the browser yet.
    Creating,
    /// DevTools respond. The row is being updated.
    Publishing,
    /// DevTools respond and clients find the browser.
    Active,
    /// Clients no longer find the browser. Its host ends it.
    Deleting(EndReason),
    /// The host runs something else, or is stopped. Only the row remains.
    Deleted(EndReason),
    /// The browser did not start. The row is deleted, too.
    Discarded,
    /// Another process has ended the browser.
    Detached,
}

/// Why a browser ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// A client deleted the browser or archived its project.
    Deleted,
    /// The browser was idle for its `timeout_seconds`.
    Idle,
    /// The host was lost, or ended with the server.
    Gone,
}

/// An event in the life of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// DevTools respond.
    Ready,
    /// The row was marked as active.
    Published,
    /// The row could not be marked as active.
    NotPublished,
    /// The host did not become ready.
    StartFailed,
    /// The client that requested the browser disconnected.
    Abandoned,
    /// The browser ends for a reason.
    End(EndReason),
    /// The browser ends, and this process has recorded why.
    Withdrawn(EndReason),
    /// Another process ends, or has ended, the browser.
    EndedElsewhere,
    /// The host has ended the session and removed its data.
    HostReleased,
}

/// An action that follows from an event. Actions run in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Let clients find the browser.
    MakeVisible,
    /// Hide the browser from clients.
    Hide,
    /// Record why the browser ended.
    Withdraw(EndReason),
    /// Save the profile, if the browser is to save one, within a time limit.
    SaveProfile,
    /// Fetch the agent's recordings, within a time limit.
    SaveReplays,
    /// End the session at its host, which removes its data, then apply [`Event::HostReleased`].
    ReleaseHost,
    /// Record that the host is released, and why the browser ended.
    CloseRow(EndReason),
    /// Delete the row.
    DeleteRow,
}

/// The actions that follow from an event, in their order.
pub type Actions = &'static [Action];

/// An event that is impossible in the current state. The state has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event {event:?} is impossible in state {state:?}")]
pub struct Rejected {
    pub state: State,
    pub event: Event,
}

impl State {
    /// Returns the state after `event` and the actions that follow.
    pub fn apply(self, event: Event) -> Result<(State, Actions), Rejected> {
        use Action::{
            CloseRow, DeleteRow, Hide, MakeVisible, ReleaseHost, SaveProfile, SaveReplays, Withdraw,
        };
        use EndReason::{Deleted, Gone, Idle};
        Ok(match (self, event) {
            (State::Creating, Event::Ready) => (State::Publishing, &[]),
            (State::Publishing, Event::Published) => (State::Active, &[MakeVisible]),
            (State::Creating, Event::StartFailed | Event::Abandoned)
            | (State::Publishing, Event::NotPublished) => {
                // The row goes first, so that the name is free at once. If this process dies in
                // between, the next start finds the host by its directory.
                (State::Discarded, &[DeleteRow, ReleaseHost])
            }
            (State::Active, Event::End(reason)) => (
                State::Deleting(reason),
                match reason {
                    // Recordings first: to save the profile, the browser is closed.
                    Deleted => &[
                        Hide,
                        Withdraw(Deleted),
                        SaveReplays,
                        SaveProfile,
                        ReleaseHost,
                    ],
                    Idle => &[Hide, Withdraw(Idle), SaveReplays, SaveProfile, ReleaseHost],
                    // There is no agent to fetch from, or no time. A profile that cannot be saved
                    // any more is released.
                    Gone => &[Hide, Withdraw(Gone), SaveProfile, ReleaseHost],
                },
            ),
            (State::Active, Event::Withdrawn(reason)) => (
                State::Deleting(reason),
                match reason {
                    Deleted | Idle => &[Hide, SaveReplays, SaveProfile, ReleaseHost],
                    Gone => &[Hide, SaveProfile, ReleaseHost],
                },
            ),
            (State::Active, Event::EndedElsewhere) => (State::Detached, &[Hide]),
            (State::Deleting(reason), Event::HostReleased) => (
                State::Deleted(reason),
                match reason {
                    Deleted => &[CloseRow(Deleted)],
                    Idle => &[CloseRow(Idle)],
                    Gone => &[CloseRow(Gone)],
                },
            ),
            (State::Discarded, Event::HostReleased) => (State::Discarded, &[]),
            (state, event) => return Err(Rejected { state, event }),
        })
    }

    /// Returns whether clients find the browser.
    pub fn is_visible(self) -> bool {
        self == State::Active
    }

    /// Returns whether a client has ended the browser.
    pub fn is_ended_by_client(self) -> bool {
        matches!(
            self,
            State::Deleting(EndReason::Deleted) | State::Deleted(EndReason::Deleted)
        )
    }

    /// Returns whether no event changes the state any more.
    pub fn is_final(self) -> bool {
        matches!(self, State::Deleted(_) | State::Discarded | State::Detached)
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
            Just(Event::Withdrawn(EndReason::Deleted)),
            Just(Event::Withdrawn(EndReason::Idle)),
            Just(Event::Withdrawn(EndReason::Gone)),
            Just(Event::EndedElsewhere),
            Just(Event::HostReleased),
        ]
    }

    #[test]
    fn browser_passes_through_every_state_until_deleted() {
        let (state, actions) = State::Creating.apply(Event::Ready).unwrap();
        assert_eq!((state, actions), (State::Publishing, &[][..]));
        let (state, actions) = state.apply(Event::Published).unwrap();
        assert_eq!(
            (state, actions),
            (State::Active, &[Action::MakeVisible][..])
        );
        let (state, actions) = state.apply(Event::End(EndReason::Deleted)).unwrap();
        assert_eq!(
            actions,
            &[
                Action::Hide,
                Action::Withdraw(EndReason::Deleted),
                Action::SaveReplays,
                Action::SaveProfile,
                Action::ReleaseHost
            ]
        );
        let (state, actions) = state.apply(Event::HostReleased).unwrap();
        let close = Action::CloseRow(EndReason::Deleted);
        assert_eq!(
            (state, actions),
            (State::Deleted(EndReason::Deleted), &[close][..])
        );
    }

    #[test]
    fn browser_that_another_process_ends_is_only_hidden() {
        let (state, actions) = State::Active.apply(Event::EndedElsewhere).unwrap();
        assert_eq!((state, actions), (State::Detached, &[Action::Hide][..]));
        assert!(state.is_final() && !state.is_visible());
    }

    #[test]
    fn failed_start_deletes_row_and_stops_host() {
        for event in [Event::StartFailed, Event::Abandoned] {
            let (state, actions) = State::Creating.apply(event).unwrap();
            assert_eq!(state, State::Discarded);
            assert_eq!(actions, &[Action::DeleteRow, Action::ReleaseHost]);
        }
        let (state, actions) = State::Publishing.apply(Event::NotPublished).unwrap();
        assert_eq!(state, State::Discarded);
        assert_eq!(actions, &[Action::DeleteRow, Action::ReleaseHost]);
    }

    proptest! {
        /// For every sequence of events, the first end wins, a host is stopped exactly once,
        /// nothing is published twice, and an ended browser is never active again.
        #[test]
        fn state_is_consistent_after_every_sequence_of_events(events in proptest::collection::vec(event(), 0..40)) {
            let mut state = State::Creating;
            let (mut published, mut hidden, mut withdrawn, mut stops) = (0, 0, 0, 0);
            for event in events {
                let before = state;
                match state.apply(event) {
                    Ok((after, actions)) => {
                        prop_assert!(!matches!(before, State::Deleted(_) | State::Detached));
                        for action in actions {
                            match action {
                                Action::MakeVisible => published += 1,
                                Action::Hide => hidden += 1,
                                Action::Withdraw(_) => withdrawn += 1,
                                Action::SaveReplays | Action::SaveProfile => {
                                    prop_assert_eq!(stops, 0);
                                }
                                Action::ReleaseHost => stops += 1,
                                Action::CloseRow(reason) => {
                                    prop_assert_eq!(after, State::Deleted(*reason));
                                }
                                Action::DeleteRow => prop_assert!(after.is_final()),
                            }
                        }
                        if let State::Deleting(reason) = before {
                            prop_assert_eq!(after, State::Deleted(reason));
                        }
                        state = after;
                    }
                    Err(rejected) => prop_assert_eq!(rejected, Rejected { state: before, event }),
                }
                prop_assert_eq!(state.is_visible(), published == 1 && hidden == 0);
                prop_assert!(published <= 1 && hidden <= published && withdrawn <= hidden && stops <= 1);
                prop_assert_eq!(stops == 1, matches!(state, State::Deleting(_) | State::Deleted(_) | State::Discarded));
            }
        }
    }
}
