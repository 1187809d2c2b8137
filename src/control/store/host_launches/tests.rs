//! Tests of the rows of launches.

use std::{collections::BTreeMap, net::SocketAddr};

use chrono::TimeDelta;
use futures::future::join_all;

use super::*;
use crate::{
    control::{
        fleet::registered::EngineId,
        store::{Fleet, HostMachine, test_database::TestDatabase},
    },
    system::identity::HostKey,
};

fn options() -> LaunchOptions {
    LaunchOptions {
        mode: HostMode {
            headless: true,
            kiosk_mode: false,
        },
        viewport: Viewport::default(),
    }
}

fn token() -> LaunchToken {
    LaunchToken {
        public_part: "0123456789ab".to_owned(),
        digest: [7; 32],
        // As the database stores it.
        expires_at: from_millis(to_millis(Utc::now() + TimeDelta::hours(1))).unwrap(),
    }
}

fn new_host() -> NewRegisteredHost {
    let capabilities = serde_json::json!({
        "display": true,
        "max_viewport": {"width": 1920, "height": 1080},
        "engine": "chromium",
        "memory_bytes": 1,
    });
    NewRegisteredHost {
        machine: HostMachine {
            address: SocketAddr::from(([10, 0, 0, 7], 10_001)),
            boot_id: "first".to_owned(),
            version: "1.0".to_owned(),
            capabilities: serde_json::from_value(capabilities).unwrap(),
        },
        labels: BTreeMap::new(),
        public_key: HostKey::generate().unwrap().public().clone(),
    }
}

async fn only_launch(store: &Store) -> HostLaunchRow {
    let [row] = store
        .list_host_launches()
        .await
        .unwrap()
        .try_into()
        .unwrap();
    row
}

/// Requests a launch and starts it.
async fn started(store: &Store) -> HostLaunchRow {
    let now = Utc::now();
    assert!(store.request_host_launch(0, &options(), now).await.unwrap());
    let row = only_launch(store).await;
    let after = row.life.apply(LaunchEvent::Started).unwrap();
    let token = token();
    let started = store.start_host_launch(&row, &after, &token, now);
    assert!(started.await.unwrap());
    only_launch(store).await
}

async fn change(store: &Store, row: &HostLaunchRow, event: LaunchEvent) -> bool {
    let after = row.life.apply(event).unwrap();
    let changed = store.change_host_launch(row, &after, Utc::now());
    changed.await.unwrap()
}

#[tokio::test]
async fn slot_has_one_launch() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let options = options();
    let requests = (0..8).map(|_| store.request_host_launch(3, &options, Utc::now()));
    let inserted = join_all(requests).await.into_iter().map(Result::unwrap);
    assert_eq!(inserted.filter(|inserted| *inserted).count(), 1);
    let row = only_launch(&store).await;
    assert_eq!((row.slot, row.life), (Some(3), LaunchLife::requested()));
    assert_eq!((row.options, row.token), (options, None));
    store.close().await.unwrap();
}

#[tokio::test]
async fn launch_is_started_once() {
    let database = TestDatabase::create();
    let store = database.open().await;
    store
        .request_host_launch(0, &options(), Utc::now())
        .await
        .unwrap();
    let row = only_launch(&store).await;
    let after = row.life.apply(LaunchEvent::Started).unwrap();
    let token = token();
    let starts = (0..8).map(|_| store.start_host_launch(&row, &after, &token, Utc::now()));
    let started = join_all(starts).await.into_iter().map(Result::unwrap);
    assert_eq!(started.filter(|started| *started).count(), 1);
    let found = store.find_host_launch_by_token(&token.public_part).await;
    let found = found.unwrap().unwrap();
    assert_eq!((&found.life, found.token), (&after, Some(token)));
    assert!(
        store
            .find_host_launch_by_token("other")
            .await
            .unwrap()
            .is_none()
    );
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_joins_a_launch_once_while_its_command_may_exit() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = started(&store).await;
    let id: EngineId = "i-1".parse().unwrap();
    let created = change(&store, &row, LaunchEvent::Created(id.clone()));
    let joins = (0..4).map(|_| store.create_launched_host(&row.id, new_host(), Utc::now()));
    let (was_created, joined) = tokio::join!(created, join_all(joins));
    let hosts: Vec<_> = joined.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(hosts.len(), 1);
    let row = only_launch(&store).await;
    assert_eq!(row.life.host.as_ref(), Some(&hosts[0].id));
    // The compare-and-set of the command's end may have lost, and is repeated then.
    assert!(was_created || change(&store, &row, LaunchEvent::Created(id.clone())).await);
    let row = only_launch(&store).await;
    assert_eq!(row.life.state, LaunchState::Launched);
    assert_eq!(row.life.engine_id, Some(id));
    let registered = store.hosts_of(Fleet::Registered).await.unwrap();
    assert_eq!(registered.len(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_joins_before_the_launch_is_given_up_or_not_at_all() {
    for _ in 0..8 {
        let database = TestDatabase::create();
        let store = database.open().await;
        let row = started(&store).await;
        let given_up = change(&store, &row, LaunchEvent::Failed);
        let joined = store.create_launched_host(&row.id, new_host(), Utc::now());
        let (given_up, joined) = tokio::join!(given_up, joined);
        let joined = joined.unwrap();
        assert_ne!(given_up, joined.is_some());
        let hosts = store.hosts_of(Fleet::Registered).await.unwrap();
        assert_eq!(hosts.len(), usize::from(joined.is_some()));
        let life = only_launch(&store).await.life;
        assert_eq!(life.host, joined.map(|host| host.id));
        assert_eq!(life.state == LaunchState::Destroying, given_up);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn row_is_deleted_only_as_it_was_destroyed() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let row = started(&store).await;
    assert!(change(&store, &row, LaunchEvent::Failed).await);
    let row = only_launch(&store).await;
    // The engine id becomes known while the destroy command runs without it.
    let id: EngineId = "i-1".parse().unwrap();
    assert!(change(&store, &row, LaunchEvent::Created(id)).await);
    assert!(!change(&store, &row, LaunchEvent::Destroyed).await);
    let row = only_launch(&store).await;
    assert!(change(&store, &row, LaunchEvent::Destroyed).await);
    assert_eq!(store.list_host_launches().await.unwrap(), []);
    // Its token is of no use any more.
    let joined = store.create_launched_host(&row.id, new_host(), Utc::now());
    assert!(joined.await.unwrap().is_none());
    // A launch that runs on is restored, several without a slot.
    for _ in 0..2 {
        let restored = HostLaunchRow {
            id: LaunchId::generate(),
            slot: None,
            token: None,
            ..row.clone()
        };
        store.insert_host_launch(&restored).await.unwrap();
    }
    assert_eq!(store.list_host_launches().await.unwrap().len(), 2);
    store.close().await.unwrap();
}
