//! Tests of the table of hosts.

use std::collections::HashSet;

use chrono::TimeDelta;
use futures::future::join_all;

use super::*;
use crate::control::{
    hosts::state::Event,
    store::{NewProcess, test_database::TestDatabase},
};

const ON_SCREEN: HostMode = HostMode {
    headless: false,
    kiosk_mode: false,
};
const HEADLESS: HostMode = HostMode {
    headless: true,
    kiosk_mode: false,
};

/// Inserts a host that is ready since `ready_at`.
async fn ready(store: &Store, mode: HostMode, ready_at: DateTime<Utc>) -> HostId {
    let id = HostId::generate();
    let starting = HostLife::starting(None);
    let (ready, _) = starting.apply(Event::Started { generation: 1 }).unwrap();
    let added = store.add_host(&id, Fleet::Local, mode, &starting, None, ready_at);
    added.await.unwrap();
    let changed = store.change_host(&id, &starting, &ready, ready_at).await;
    assert!(changed.unwrap());
    id
}

#[tokio::test]
async fn claim_takes_the_host_of_the_mode_that_became_ready_last() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    let older = ready(&store, ON_SCREEN, now - TimeDelta::seconds(2)).await;
    let newer = ready(&store, ON_SCREEN, now - TimeDelta::seconds(1)).await;
    let other = ready(&store, HEADLESS, now).await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        let session = BrowserId::generate();
        let row = store.claim_host(Fleet::Local, ON_SCREEN, Viewport::default(), &session, now);
        let row = row.await.unwrap();
        if let Some(row) = &row {
            assert_eq!(row.life.state, State::Leased);
            assert_eq!(row.life.session, Some(session));
        }
        claimed.push(row.map(|row| row.id));
    }
    assert_eq!(claimed, [Some(newer), Some(older), None]);
    let untouched = store.find_host(&other).await.unwrap().unwrap();
    assert_eq!(untouched.life.state, State::Ready);
    store.close().await.unwrap();
}

#[tokio::test]
async fn each_of_many_hosts_is_claimed_once() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    for _ in 0..5 {
        ready(&store, ON_SCREEN, now).await;
    }
    let claims = (0..20).map(|_| {
        let store = store.clone();
        async move {
            let session = BrowserId::generate();
            // On PostgreSQL a claim may miss a host whose lock another one has just given up.
            let claimed =
                store.claim_host(Fleet::Local, ON_SCREEN, Viewport::default(), &session, now);
            claimed.await.unwrap().map(|row| row.id)
        }
    });
    let claimed: Vec<HostId> = join_all(claims).await.into_iter().flatten().collect();
    let distinct: HashSet<&HostId> = claimed.iter().collect();
    assert_eq!(distinct.len(), claimed.len());
    let hosts = store.hosts_of(Fleet::Local).await.unwrap();
    let leased = hosts.iter().filter(|host| host.life.session.is_some());
    assert_eq!(leased.count(), claimed.len());
    assert_eq!(hosts.len(), 5);
    store.close().await.unwrap();
}

#[tokio::test]
async fn change_of_a_host_that_has_changed_does_nothing() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let now = Utc::now();
    let id = ready(&store, ON_SCREEN, now).await;
    let life = store.find_host(&id).await.unwrap().unwrap().life;
    let (draining, _) = life.apply(Event::Drain).unwrap();
    let session = BrowserId::generate();
    let (leased, _) = life.apply(Event::Claim(session)).unwrap();
    assert!(store.change_host(&id, &life, &leased, now).await.unwrap());
    assert!(!store.change_host(&id, &life, &draining, now).await.unwrap());
    assert_eq!(store.find_host(&id).await.unwrap().unwrap().life, leased);

    store.delete_host(&id).await.unwrap();
    assert_eq!(store.find_host(&id).await.unwrap(), None);
    ready(&store, ON_SCREEN, now).await;
    store.delete_hosts_of(Fleet::Local).await.unwrap();
    assert_eq!(store.hosts_of(Fleet::Local).await.unwrap(), []);
    store.close().await.unwrap();
}

#[tokio::test]
async fn claim_takes_one_host_with_any_plan_of_the_query() {
    let database = TestDatabase::create();
    if let Some(postgres) = &database.postgres {
        // The planner prefers these while a table is small.
        let plans = ["hashjoin", "mergejoin", "hashagg", "sort", "material"];
        let role = &postgres.name;
        let disable = plans.map(|plan| format!("ALTER ROLE {role} SET enable_{plan} = off"));
        postgres.execute_as_superuser(&disable).await;
    }
    let store = database.open().await;
    let now = Utc::now();
    // The one that is claimed first is found first, too.
    for seconds in 0..3 {
        ready(&store, ON_SCREEN, now - TimeDelta::seconds(seconds)).await;
    }
    for left in [2, 1, 0] {
        let session = BrowserId::generate();
        let claimed = store.claim_host(Fleet::Local, ON_SCREEN, Viewport::default(), &session, now);
        assert!(claimed.await.unwrap().is_some());
        let ready = store.hosts_of(Fleet::Local).await.unwrap().into_iter();
        let ready = ready.filter(|host| host.life.state == State::Ready);
        assert_eq!(ready.count(), left);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_is_settled_until_it_changes() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let id = ready(&store, ON_SCREEN, Utc::now()).await;
    let find = async || store.find_host(&id).await.unwrap().unwrap();
    let before = find().await;
    let (retiring, _) = before.life.apply(Event::Drain).unwrap();
    let changed = store.change_host(&id, &before.life, &retiring, Utc::now());
    assert!(changed.await.unwrap());
    store.set_host_settled(&before).await.unwrap();
    let row = find().await;
    assert!(!row.is_settled);
    store.set_host_settled(&row).await.unwrap();
    assert!(find().await.is_settled);
    let (gone, _) = retiring.apply(Event::Stopped).unwrap();
    let changed = store.change_host(&id, &retiring, &gone, Utc::now());
    assert!(changed.await.unwrap());
    assert!(!find().await.is_settled);
    store.close().await.unwrap();
}

#[tokio::test]
async fn host_is_adopted_once() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let id = ready(&store, ON_SCREEN, Utc::now()).await;
    let row = store.find_host(&id).await.unwrap().unwrap();
    assert_eq!(row.process, None);
    let first = store.begin_process(NewProcess::sample("a")).await.unwrap();
    let second = store.begin_process(NewProcess::sample("b")).await.unwrap();
    assert!(first.adopt_host(&row).await.unwrap());
    assert!(!second.adopt_host(&row).await.unwrap());
    let adopted = store.find_host(&id).await.unwrap().unwrap();
    assert_eq!(adopted.process, first.process());
    // The process that changes the host does what follows.
    let (next, _) = row.life.apply(Event::Drain).unwrap();
    let changed = second.change_host(&id, &row.life, &next, Utc::now()).await;
    assert!(changed.unwrap());
    assert!(!first.adopt_host(&adopted).await.unwrap());
    let changed = store.find_host(&id).await.unwrap().unwrap();
    assert_eq!(changed.process, second.process());
    store.close().await.unwrap();
}
