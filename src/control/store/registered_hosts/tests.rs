//! Tests of the rows of registered hosts.

use chrono::TimeDelta;
use futures::future::join_all;

use super::*;
use crate::{
    api::{
        ids::{BrowserId, ReplayId},
        viewport::Viewport,
    },
    control::{
        browsers::state::EndReason,
        hosts::state::{Event, RESTART_TIMEOUT},
        store::{
            Authorized, BrowserRow, CallerKey, HostMode, JoinTokenRow, KeyCreator, NewApiKey,
            NewBrowserRow, NewJoinToken, UniqueConstraint, test_database::TestDatabase,
        },
    },
    system::identity::HostKey,
};

fn machine(port: u16) -> HostMachine {
    let capabilities = serde_json::json!({
        "display": true,
        "max_viewport": {"width": 1920, "height": 1080},
        "engine": "chromium",
        "memory_bytes": u64::MAX,
    });
    HostMachine {
        address: SocketAddr::from(([10, 0, 0, 7], port)),
        boot_id: "first".to_owned(),
        version: "1.0".to_owned(),
        capabilities: serde_json::from_value(capabilities).unwrap(),
    }
}

fn new_host(port: u16) -> NewRegisteredHost {
    NewRegisteredHost {
        machine: machine(port),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        public_key: HostKey::generate().unwrap().public().clone(),
    }
}

async fn join_token(store: &Store, max_uses: u32) -> JoinTokenRow {
    let key = NewApiKey {
        name: "k".to_owned(),
        public_part: max_uses.to_string(),
        digest: [0; 32],
        project_id: None,
        expires_at: None,
        created_by: None,
    };
    let key = store.create_api_key(key, Utc::now()).await.unwrap();
    let caller = CallerKey {
        id: key.id.clone(),
        public_part: key.public_part,
    };
    let new = NewJoinToken {
        public_part: max_uses.to_string(),
        digest: [0; 32],
        max_uses,
        labels: BTreeMap::new(),
        created_by: KeyCreator {
            id: key.id,
            name: key.name,
        },
        expires_at: None,
    };
    let created = store.create_join_token_for(&caller, new, Utc::now()).await;
    match created.unwrap() {
        Authorized::Done(row) => row,
        Authorized::CallerInvalid => panic!("the key is valid"),
    }
}

/// Inserts a host that has registered at `now`.
async fn registered(store: &Store, max_uses: u32, now: DateTime<Utc>) -> RegisteredHostRow {
    let token = join_token(store, max_uses).await;
    let created = store.create_registered_host(&token.id, new_host(1), now);
    created.await.unwrap().unwrap()
}

#[tokio::test]
async fn concurrent_registrations_never_exceed_the_uses_of_their_token() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let token = join_token(&store, 3).await;
    let registrations = (1..=12).map(|port| {
        let (store, id) = (store.clone(), token.id.clone());
        async move {
            let created = store.create_registered_host(&id, new_host(port), Utc::now());
            created.await.unwrap()
        }
    });
    let created: Vec<_> = join_all(registrations)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(created.len(), 3);
    let listed = store.list_registered_hosts(0, 100).await.unwrap();
    assert_eq!(listed.len(), 3);
    for row in &created {
        assert!(listed.contains(row));
        let found = store.find_registered_host_by_key(&row.public_key).await;
        assert_eq!(found.unwrap().as_ref(), Some(row));
        assert_eq!(row.life, HostLife::starting(None));
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn registration_with_a_known_key_takes_no_use() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let token = join_token(&store, 2).await;
    let new = new_host(1);
    let first = store.create_registered_host(&token.id, new.clone(), Utc::now());
    assert!(first.await.unwrap().is_some());
    let again = store.create_registered_host(&token.id, new, Utc::now());
    let error = again.await.unwrap_err();
    let expected = UniqueConstraint::HostPublicKey;
    assert!(matches!(error, StoreError::UniqueViolation(found) if found == expected));
    let found = store.find_join_token_by_public_part(&token.public_part);
    assert_eq!(found.await.unwrap().unwrap().uses, 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_that_reports_meanwhile_is_not_lost() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    let row = registered(&store, 1, now - TimeDelta::minutes(1)).await;
    let (lost, _) = row.life.apply(Event::Missed).unwrap();
    let silent = store.silent_hosts(now, 10).await.unwrap();
    assert_eq!(silent, std::slice::from_ref(&row));
    assert_eq!(store.silent_hosts(row.heartbeat_at, 10).await.unwrap(), []);

    let reported = store.record_host_report(&row, &row.machine, &row.life, now);
    assert!(reported.await.unwrap());
    // Of another process, which was slow.
    let earlier = now - TimeDelta::seconds(50);
    let reported = store.record_host_report(&row, &row.machine, &row.life, earlier);
    assert!(reported.await.unwrap());
    let changed = store.change_silent_host(&row, &lost, now, now);
    assert!(!changed.await.unwrap());
    let later = now + TimeDelta::minutes(1);
    let changed = store.change_silent_host(&row, &lost, later, later);
    assert!(changed.await.unwrap());
    let found = store.find_registered_host(&row.id).await.unwrap().unwrap();
    assert_eq!(found.life.state, State::Lost);
    assert_eq!(store.silent_hosts(later, 10).await.unwrap(), []);
    store.close().await.unwrap();
}

#[tokio::test]
async fn report_of_a_host_that_has_changed_does_nothing() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    let row = registered(&store, 1, now - TimeDelta::minutes(1)).await;
    let (started, _) = row.life.apply(Event::Started { generation: 1 }).unwrap();
    let (draining, _) = row.life.apply(Event::Drain).unwrap();
    let drained = store.change_host(&row.id, &row.life, &draining, now);
    assert!(drained.await.unwrap());
    let rebooted = HostMachine {
        boot_id: "second".to_owned(),
        ..machine(2)
    };
    let reported = store.record_host_report(&row, &rebooted, &started, now);
    assert!(!reported.await.unwrap());
    let found = store.find_registered_host(&row.id).await.unwrap().unwrap();
    assert_eq!((&found.machine, &found.life), (&row.machine, &draining));

    let reported = store.record_host_report(&found, &rebooted, &found.life, now);
    assert!(reported.await.unwrap());
    let found = store.find_registered_host(&row.id).await.unwrap().unwrap();
    assert_eq!(found.machine, rebooted);
    // A report without another state is no change of the state.
    assert!(found.heartbeat_at > found.created_at && found.life == draining);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_that_is_gone_frees_its_key_and_is_purged() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    let row = registered(&store, 1, now).await;
    let other = registered(&store, 2, now).await;
    let counted = store.count_hosts().await.unwrap();
    assert!(counted.contains(&("starting", 2)));
    let (gone, _) = row.life.apply(Event::Stopped).unwrap();
    let changed = store.change_host(&row.id, &row.life, &gone, now).await;
    assert!(changed.unwrap());
    assert_eq!(store.find_registered_host(&row.id).await.unwrap(), None);
    let by_key = store.find_registered_host_by_key(&row.public_key).await;
    assert_eq!(by_key.unwrap(), None);
    let listed = store.list_registered_hosts(0, 10).await.unwrap();
    assert_eq!(listed, [other]);
    let counted = store.count_hosts().await.unwrap();
    assert!(counted.contains(&("starting", 1)));
    assert!(counted.contains(&("lost", 0)));

    let later = now + TimeDelta::days(1);
    assert_eq!(store.purge_registered_hosts(now).await.unwrap(), 0);
    assert_eq!(store.purge_registered_hosts(later).await.unwrap(), 1);
    store.close().await.unwrap();
}

/// Makes a host ready.
async fn ready(store: &Store, row: &RegisteredHostRow) -> HostLife {
    let (ready, _) = row.life.apply(Event::Started { generation: 7 }).unwrap();
    let changed = store.change_host(&row.id, &row.life, &ready, Utc::now());
    assert!(changed.await.unwrap());
    ready
}

/// Inserts the row of a browser that starts.
async fn starting_browser(store: &Store) -> BrowserRow {
    let project = store.default_project("default", Utc::now()).await.unwrap();
    let new = NewBrowserRow {
        headless: false,
        ..NewBrowserRow::sample(&project.id)
    };
    store.create_browser(new, Utc::now()).await.unwrap()
}

const ON_SCREEN: HostMode = HostMode {
    headless: false,
    kiosk_mode: false,
};

#[tokio::test]
async fn ready_host_is_leased_for_its_mode_and_up_to_its_viewport() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = registered(&store, 1, Utc::now()).await;
    let (fleet, fitting) = (Fleet::Registered, Viewport::default());
    assert_eq!(store.count_usable_hosts(fleet).await.unwrap(), 1);
    let expects = async |mode, viewport| {
        let expected = store.expects_host(fleet, mode, viewport, Utc::now());
        expected.await.unwrap()
    };
    assert!(!expects(ON_SCREEN, fitting).await);
    // A host that has been starting for long may never be ready.
    for (age, free) in [(1, 1), (-1, 0)] {
        let since = Utc::now() - TimeDelta::minutes(age);
        let counted = store.count_free_hosts(fleet, ON_SCREEN, fitting, since);
        assert_eq!(counted.await.unwrap(), free);
    }
    ready(&store, &row).await;
    let counted = store.count_free_hosts(fleet, ON_SCREEN, fitting, Utc::now());
    assert_eq!(counted.await.unwrap(), 1);
    let wide = Viewport {
        width: 1921,
        ..fitting
    };
    let high = Viewport {
        height: 1081,
        ..fitting
    };
    let headless = HostMode {
        headless: true,
        ..ON_SCREEN
    };
    let kiosk = HostMode {
        kiosk_mode: true,
        ..ON_SCREEN
    };
    let session = BrowserId::generate();
    for (mode, viewport) in [
        (ON_SCREEN, wide),
        (ON_SCREEN, high),
        (headless, fitting),
        (kiosk, fitting),
    ] {
        assert!(!expects(mode, viewport).await);
        let claimed = store.claim_host(fleet, mode, viewport, &session, Utc::now());
        assert_eq!(claimed.await.unwrap(), None);
    }
    assert!(expects(ON_SCREEN, fitting).await);
    let claimed = store.claim_host(fleet, ON_SCREEN, fitting, &session, Utc::now());
    let claimed = claimed.await.unwrap().unwrap();
    assert_eq!(claimed.id, row.id);
    assert_eq!(
        (claimed.life.generation, claimed.life.session),
        (7, Some(session))
    );
    assert_eq!(claimed.address, Some(row.machine.address));
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_whose_agent_starts_again_is_expected_and_not_leased() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = registered(&store, 1, Utc::now()).await;
    let life = ready(&store, &row).await;
    let (restarting, _) = life.apply(Event::RestartBegins).unwrap();
    let changed = store.change_host(&row.id, &life, &restarting, Utc::now());
    assert!(changed.await.unwrap());
    let (fleet, viewport) = (Fleet::Registered, Viewport::default());
    assert!(
        store
            .expects_host(fleet, ON_SCREEN, viewport, Utc::now())
            .await
            .unwrap()
    );
    let later = Utc::now() + RESTART_TIMEOUT + TimeDelta::seconds(1);
    let expected = store.expects_host(fleet, ON_SCREEN, viewport, later);
    assert!(!expected.await.unwrap());
    let session = BrowserId::generate();
    let claimed = store.claim_host(fleet, ON_SCREEN, viewport, &session, Utc::now());
    assert_eq!(claimed.await.unwrap(), None);
    let found = store.find_host(&row.id).await.unwrap().unwrap();
    assert_eq!(found.life, restarting);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_that_reports_other_capabilities_is_leased_by_these() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = registered(&store, 1, Utc::now()).await;
    ready(&store, &row).await;
    let wide = Viewport {
        width: 1921,
        ..Viewport::default()
    };
    let kiosk = HostMode {
        kiosk_mode: true,
        ..ON_SCREEN
    };
    let expects = async |mode, viewport| {
        let expected = store.expects_host(Fleet::Registered, mode, viewport, Utc::now());
        expected.await.unwrap()
    };
    assert!(expects(ON_SCREEN, Viewport::default()).await);
    assert!(!expects(kiosk, wide).await);
    // The agent was started again with a larger screen, in kiosk mode.
    let row = store.find_registered_host(&row.id).await.unwrap().unwrap();
    let mut machine = row.machine.clone();
    let capabilities = serde_json::json!({
        "display": true,
        "max_viewport": {"width": 3840, "height": 3840},
        "kiosk_mode": true,
        "engine": "chromium",
        "memory_bytes": 1,
    });
    machine.capabilities = serde_json::from_value(capabilities).unwrap();
    let (recycling, _) = row
        .life
        .apply(Event::Missed)
        .unwrap()
        .0
        .apply(Event::Returned)
        .unwrap();
    let reported = store.record_host_report(&row, &machine, &recycling, Utc::now());
    assert!(reported.await.unwrap());
    assert!(expects(kiosk, wide).await);
    assert!(!expects(ON_SCREEN, Viewport::default()).await);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_is_abandoned_once_its_browser_has_ended_or_has_no_row() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = registered(&store, 1, Utc::now()).await;
    ready(&store, &row).await;
    let browser = starting_browser(&store).await;
    let viewport = Viewport::default();
    let claimed = store.claim_host(
        Fleet::Registered,
        ON_SCREEN,
        viewport,
        &browser.id,
        Utc::now(),
    );
    assert!(claimed.await.unwrap().is_some());
    let later = Utc::now() + TimeDelta::hours(1);
    let abandoned = async |before| store.abandoned_hosts(before).await.unwrap();
    assert_eq!(abandoned(later).await, []);
    let published = store
        .publish_browser(&browser.id, &row.id, 7, Utc::now())
        .await;
    assert!(published.unwrap());
    assert_eq!(abandoned(later).await, []);
    let on_host = store.browser_on(&row.id, 7).await.unwrap();
    assert_eq!(
        on_host,
        Some((browser.project_id.clone(), browser.id.clone()))
    );
    assert_eq!(store.browser_on(&row.id, 8).await.unwrap(), None);

    let used_at = Utc::now() + TimeDelta::minutes(1);
    let used = [browser.id.clone()];
    store.record_browser_use(&used, used_at).await.unwrap();
    let active = store.find_active_browser(&browser.id).await.unwrap();
    let active = active.unwrap();
    assert_eq!(active.host, Some((row.id.clone(), 7)));
    assert_eq!(
        active.used_at.timestamp_millis(),
        used_at.timestamp_millis()
    );

    let ended_at = Utc::now();
    let reason = EndReason::Idle;
    assert!(
        store
            .withdraw_browser(&browser.id, reason, ended_at)
            .await
            .unwrap()
    );
    assert_eq!(abandoned(ended_at - TimeDelta::seconds(1)).await, []);
    let expected = [(row.id.clone(), browser.id.clone())];
    assert_eq!(abandoned(later).await, expected);
    store
        .close_browser(&browser.id, reason, ended_at)
        .await
        .unwrap();
    assert_eq!(abandoned(later).await, expected);
    store.purge_browsers(later).await.unwrap();
    assert_eq!(abandoned(ended_at - TimeDelta::hours(1)).await, expected);
    store.close().await.unwrap();
}

#[tokio::test]
async fn open_replays_are_at_their_host_until_it_is_gone() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = registered(&store, 1, Utc::now()).await;
    let browser = starting_browser(&store).await;
    let published = store
        .publish_browser(&browser.id, &row.id, 7, Utc::now())
        .await;
    assert!(published.unwrap());
    let (replay, project) = (ReplayId::generate(), &browser.project_id);
    let added = store.add_replay(&replay, project, &browser.id, Utc::now());
    added.await.unwrap();
    let found = async || {
        let elsewhere = store.browsers_with_open_replays().await.unwrap();
        let gone = store.browsers_with_replays_on_gone_hosts().await.unwrap();
        (elsewhere, gone)
    };
    assert_eq!(found().await, (vec![], vec![]));
    let (gone, _) = row.life.apply(Event::Stopped).unwrap();
    let changed = store.change_host(&row.id, &row.life, &gone, Utc::now());
    assert!(changed.await.unwrap());
    let ids = vec![browser.id.clone()];
    assert_eq!(found().await, (ids.clone(), ids));
    store.close().await.unwrap();
}
