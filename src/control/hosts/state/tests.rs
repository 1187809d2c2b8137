use std::collections::HashSet;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Few sessions, so that sequences of events often name the one that the host has.
fn sessions() -> Vec<BrowserId> {
    (0..3)
        .map(|n| format!("brw_0000000000000000000000000{n}"))
        .map(|id| id.parse().unwrap())
        .collect()
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..6_u64).prop_map(|generation| Event::Started { generation }),
        select(sessions()).prop_map(Event::Claim),
        select(sessions()).prop_map(Event::Release),
        (0..30_u64).prop_map(|generation| Event::Recycled { generation }),
        (0..4_u64).prop_map(|generation| Event::NotRecycled { generation }),
        Just(Event::Drain),
        Just(Event::RestartBegins),
        Just(Event::RestartEnds),
        Just(Event::Missed),
        Just(Event::Returned),
        Just(Event::Stopped),
    ]
}

fn after(life: &HostLife, event: Event) -> (HostLife, Vec<Action>) {
    life.apply(event).unwrap()
}

#[test]
fn host_serves_one_session_after_another_in_growing_generations() {
    let [first, second, _] = sessions().try_into().unwrap();
    let host = HostLife::starting(Some(first.clone()));
    let (host, actions) = after(&host, Event::Started { generation: 1 });
    assert_eq!((host.state, actions), (State::Leased, vec![]));
    let (host, actions) = after(&host, Event::Release(first));
    assert_eq!(host.state, State::Recycling);
    assert_eq!(actions, [Action::Recycle { generation: 1 }]);
    // The receipt of an earlier end.
    assert!(host.apply(Event::Recycled { generation: 1 }).is_err());
    let (host, actions) = after(&host, Event::Recycled { generation: 2 });
    assert_eq!((host.state, actions), (State::Ready, vec![]));
    let (host, _) = after(&host, Event::Claim(second.clone()));
    assert_eq!((host.state, host.generation), (State::Leased, 2));
    let (host, actions) = after(&host, Event::Stopped);
    assert_eq!(host.state, State::Gone);
    assert_eq!(actions, [Action::EndSession(second)]);
}

#[test]
fn host_that_is_not_clean_or_drains_is_stopped() {
    let session = sessions().remove(0);
    let leased = HostLife {
        state: State::Leased,
        generation: 1,
        session: Some(session.clone()),
        is_draining: false,
        is_restarting: false,
    };
    let (recycling, _) = after(&leased, Event::Release(session.clone()));
    // That of an earlier session changes nothing.
    let earlier = recycling.apply(Event::NotRecycled { generation: 0 });
    assert!(earlier.is_err());
    let (host, actions) = after(&recycling, Event::NotRecycled { generation: 1 });
    assert_eq!((host.state, actions), (State::Retiring, vec![Action::Stop]));

    let (draining, actions) = after(&leased, Event::Drain);
    assert_eq!((draining.state, actions), (State::Leased, vec![]));
    let (host, actions) = after(&draining, Event::Release(session));
    assert_eq!((host.state, actions), (State::Retiring, vec![Action::Stop]));

    let (draining, _) = after(&recycling, Event::Drain);
    let (host, actions) = after(&draining, Event::Recycled { generation: 2 });
    assert_eq!((host.state, actions), (State::Retiring, vec![Action::Stop]));
}

#[test]
fn lost_host_ends_its_session_and_is_recycled_when_it_returns() {
    let session = sessions().remove(0);
    let host = HostLife::starting(Some(session.clone()));
    let (host, _) = after(&host, Event::Started { generation: 7 });
    let (host, actions) = after(&host, Event::Missed);
    assert_eq!(actions, [Action::EndSession(session.clone())]);
    assert!(host.apply(Event::Claim(session)).is_err());
    let (host, actions) = after(&host, Event::Returned);
    assert_eq!(host.state, State::Recycling);
    assert_eq!(actions, [Action::Recycle { generation: 7 }]);
}

#[test]
fn host_that_is_lost_before_it_has_started_starts_when_it_returns() {
    let session = sessions().remove(0);
    let reserved = HostLife::starting(Some(session.clone()));
    let (reserved, actions) = after(&reserved, Event::Missed);
    assert_eq!(reserved.state, State::Retiring);
    assert_eq!(actions, [Action::EndSession(session), Action::Stop]);
    let (host, _) = after(&HostLife::starting(None), Event::Missed);
    let (host, actions) = after(&host, Event::Returned);
    assert_eq!((host.state, actions), (State::Starting, vec![]));
    let (host, _) = after(&host, Event::Started { generation: 7 });
    assert_eq!(host.state, State::Ready);
}

#[test]
fn host_gets_no_session_until_its_agent_has_started_again() {
    let [first, second, _] = sessions().try_into().unwrap();
    let started = Event::Started { generation: 4 };
    let (ready, _) = after(&HostLife::starting(None), started.clone());
    let (host, actions) = after(&ready, Event::RestartBegins);
    assert_eq!((host.state, actions), (State::Starting, vec![]));
    assert!(host.apply(Event::Claim(first.clone())).is_err());
    assert!(host.apply(started.clone()).is_err());
    let (host, _) = after(&host, Event::RestartEnds);
    let (host, _) = after(&host, started);
    assert_eq!(host, ready);

    // An earlier session runs to its end.
    let (host, _) = after(&ready, Event::Claim(first.clone()));
    let (host, _) = after(&host, Event::RestartBegins);
    assert_eq!(host.state, State::Leased);
    let (host, _) = after(&host, Event::Release(first));
    let (host, _) = after(&host, Event::Recycled { generation: 5 });
    assert_eq!((host.state, host.generation), (State::Starting, 5));
    let (host, _) = after(&host, Event::RestartEnds);
    let (host, _) = after(&host, Event::Started { generation: 5 });
    assert!(host.apply(Event::Claim(second)).is_ok());
}

proptest! {
    /// After every sequence of events: a session is held only while it is starting or leased, no
    /// generation is leased twice, each session that is not released is ended, and a host that is
    /// being stopped gets no session.
    #[test]
    fn state_is_consistent_after_every_sequence_of_events(events in vec(event(), 0..60)) {
        let mut life = HostLife::starting(None);
        let mut leased = HashSet::new();
        for event in events {
            let before = life.clone();
            let (after, actions) = match life.apply(event.clone()) {
                Ok(applied) => applied,
                Err(rejected) => {
                    prop_assert_eq!(rejected, ImpossibleEvent { life: before, event });
                    continue;
                }
            };
            prop_assert_eq!(
                after.session.is_some(),
                matches!((after.state, &after.session), (State::Leased, _) | (State::Starting, Some(_)))
            );
            prop_assert!(after.generation >= before.generation);
            prop_assert!(before.state != State::Gone);
            if after.state == State::Leased && before.state != State::Leased {
                prop_assert!(!before.is_draining || before.state == State::Starting);
                prop_assert!(!before.is_restarting);
                prop_assert!(leased.insert(after.generation), "generation leased twice");
            }
            if let Some(session) = &before.session && after.session.is_none() {
                let is_released = event == Event::Release(session.clone());
                let is_ended = actions.contains(&Action::EndSession(session.clone()));
                prop_assert!(is_released != is_ended);
            }
            let stops = actions.contains(&Action::Stop);
            prop_assert_eq!(stops, after.state == State::Retiring && before.state != State::Retiring);
            life = after;
        }
    }
}
