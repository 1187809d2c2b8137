use proptest::{collection::vec, prelude::*};

use super::*;

fn engine_id(text: &str) -> EngineId {
    text.parse().unwrap()
}

fn host(number: u8) -> HostId {
    format!("host_0000000000000000000000000{number}")
        .parse()
        .unwrap()
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => Just(Event::Withdrawn),
        3 => Just(Event::Started),
        2 => (0..3_u8).prop_map(|number| Event::Created(engine_id(&number.to_string()))),
        1 => Just(Event::Failed),
        2 => (0..3_u8).prop_map(|number| Event::Joined(host(number))),
        1 => Just(Event::JoinTimedOut),
        1 => Just(Event::HostEnded),
        1 => Just(Event::Destroyed),
    ]
}

fn after(life: &LaunchLife, events: impl IntoIterator<Item = Event>) -> LaunchLife {
    let mut life = life.clone();
    for event in events {
        life = life.apply(event).unwrap();
    }
    life
}

#[test]
fn launch_is_destroyed_with_its_engine_id_after_its_host_has_ended() {
    let id = engine_id("i-1");
    for joining in [
        [Event::Created(id.clone()), Event::Joined(host(1))],
        [Event::Joined(host(1)), Event::Created(id.clone())],
    ] {
        let launching = after(&LaunchLife::requested(), [Event::Started]);
        let launched = after(&launching, joining);
        assert_eq!(launched.state, State::Launched);
        assert!(launched.apply(Event::Joined(host(2))).is_err());
        assert!(launched.apply(Event::JoinTimedOut).is_err());
        let destroying = after(&launched, [Event::HostEnded]);
        assert_eq!(destroying.state, State::Destroying);
        assert_eq!(destroying.engine_id, Some(id.clone()));
        let gone = after(&destroying, [Event::Destroyed]);
        assert_eq!(gone.state, State::Gone);
    }
}

#[test]
fn failed_launch_is_destroyed_unless_its_host_has_joined() {
    let launching = after(&LaunchLife::requested(), [Event::Started]);
    let failed = after(&launching, [Event::Failed]);
    assert_eq!(failed, LaunchLife::destroying(None));
    assert!(failed.apply(Event::Joined(host(1))).is_err());
    let failed = after(&launching, [Event::Joined(host(1)), Event::Failed]);
    assert_eq!((failed.state, &failed.engine_id), (State::Launched, &None));
    // The command was not interrupted after all.
    let id = engine_id("i-1");
    let created = after(&failed, [Event::Created(id.clone())]);
    assert_eq!(created.engine_id, Some(id.clone()));
    assert!(created.apply(Event::Created(id)).is_err());
}

#[test]
fn only_a_launch_that_was_not_started_is_withdrawn() {
    let requested = LaunchLife::requested();
    let withdrawn = after(&requested, [Event::Withdrawn]);
    assert_eq!(withdrawn.state, State::Gone);
    let launching = after(&requested, [Event::Started]);
    assert!(launching.apply(Event::Withdrawn).is_err());
    assert!(launching.apply(Event::Started).is_err());
}

proptest! {
    /// After every sequence of events: a started launch ends by its destruction only, an engine id
    /// and a host are never replaced, and a host joins only a machine that is not to be destroyed.
    #[test]
    fn launch_is_consistent_after_every_sequence_of_events(events in vec(event(), 0..40)) {
        let mut life = LaunchLife::requested();
        for event in events {
            let before = life.clone();
            let after = match life.apply(event.clone()) {
                Ok(after) => after,
                Err(rejected) => {
                    prop_assert_eq!(rejected, ImpossibleLaunchEvent { life: before, event });
                    continue;
                }
            };
            prop_assert!(before.state != State::Gone);
            if after.state == State::Gone {
                let expected = match before.state {
                    State::Requested => Event::Withdrawn,
                    _ => Event::Destroyed,
                };
                prop_assert_eq!(event, expected);
                prop_assert!(before.state == State::Requested || before.state == State::Destroying);
            }
            prop_assert!(before.engine_id.is_none() || after.engine_id == before.engine_id);
            prop_assert!(before.host.is_none() || after.host == before.host);
            if after.host != before.host {
                prop_assert!(matches!(after.state, State::Launching | State::Launched));
            }
            life = after;
        }
    }
}
