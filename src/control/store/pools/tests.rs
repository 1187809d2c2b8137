//! Tests of pools in the database.

use std::collections::HashSet;

use futures::future::join_all;
use sea_orm::QueryTrait;

use super::*;
use crate::{
    api::ids::{HostId, ProfileId},
    control::{
        browsers::state::EndReason,
        hosts::state::{HostLife, State},
        store::{
            BrowserProfileRow, DeleteProfileOutcome, Fleet, NewBrowserRow, NewProcess, PoolOrigin,
            UniqueConstraint,
            test_database::{TestDatabase, explain, is_sorting},
        },
    },
};

fn settings(size: u32) -> PoolSettings {
    PoolSettings {
        name: None,
        size,
        fill_rate_per_minute: 25,
        timeout_seconds: 600,
        max_age_seconds: None,
        max_leases: None,
        refresh_on_profile_update: false,
        config: PoolConfig::sample(),
    }
}

/// A store with a pool.
struct Fixture {
    _database: TestDatabase,
    store: Store,
    project: ProjectId,
    pool: PoolRow,
}

impl Fixture {
    async fn new() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let store = store.begin_process(NewProcess::sample("a")).await.unwrap();
        let project = store.default_project("default", Utc::now()).await.unwrap();
        let pool = store.create_pool(&project.id, settings(4), Utc::now());
        Fixture {
            pool: pool.await.unwrap(),
            project: project.id,
            _database: database,
            store,
        }
    }

    /// Adds an idle browser on a host that runs it.
    async fn idle(&self) -> (BrowserId, HostId) {
        let (id, host) = (BrowserId::generate(), HostId::generate());
        let (store, pool) = (&self.store, &self.pool);
        let ids = std::slice::from_ref(&id);
        store
            .add_pool_browsers(ids, pool, Utc::now())
            .await
            .unwrap();
        let life = HostLife {
            state: State::Leased,
            generation: 1,
            ..HostLife::starting(Some(id.clone()))
        };
        let mode = pool.settings.config.mode();
        let added = store.add_host(
            &host,
            Fleet::Registered,
            mode,
            &life,
            Some(&pool.id),
            Utc::now(),
        );
        added.await.unwrap();
        let idle = store.set_pool_browser_idle(&id, (&host, 1), 0, Utc::now());
        assert!(idle.await.unwrap());
        (id, host)
    }

    async fn lease(&self, claim: Claim) -> Result<LeasedBrowser, PoolLeaseError> {
        let leasing = self
            .store
            .lease_pool_browser(&self.pool.id, claim, new_row, Utc::now());
        leasing.await
    }

    async fn resize(&self, size: u32) {
        let resize = |settings: &mut PoolSettings| settings.size = size;
        let changed = self.store.change_pool(&self.pool.id, resize, Utc::now());
        changed.await.unwrap();
    }

    async fn counts(&self) -> (u64, u64, u64) {
        let counts = self.store.pool_counts(std::slice::from_ref(&self.pool.id));
        let counts = counts.await.unwrap().remove(&self.pool.id);
        let counts = counts.unwrap_or_default();
        (counts.available, counts.acquired, counts.waiting)
    }

    async fn session_of(&self, host: &HostId) -> Option<BrowserId> {
        let row = self.store.find_host(host).await.unwrap().unwrap();
        row.life.session
    }
}

fn new_row(pool: &PoolRow) -> NewBrowserRow {
    NewBrowserRow {
        pool: Some(PoolOrigin {
            id: pool.id.clone(),
            name: pool.settings.name.clone(),
        }),
        ..NewBrowserRow::sample(&pool.project_id)
    }
}

fn is_none_available(leased: &Result<LeasedBrowser, PoolLeaseError>) -> bool {
    matches!(leased, Err(PoolLeaseError::NoneAvailable))
}

#[tokio::test]
async fn lease_replaces_the_idle_browser_and_renames_its_session() {
    let fixture = Fixture::new().await;
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let (idle, host) = fixture.idle().await;
    assert_eq!(fixture.counts().await, (1, 0, 0));
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    assert_eq!((&leased.host.id, leased.host.life.generation), (&host, 1));
    assert_ne!(leased.row.id, idle);
    assert_eq!(fixture.session_of(&host).await, Some(leased.row.id.clone()));
    assert_eq!(fixture.counts().await, (0, 1, 0));
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let hosts = fixture.store.pools_overview().await.unwrap().hosts;
    assert_eq!(hosts[&fixture.pool.id][0].lease_count, 1);
}

#[tokio::test]
async fn browser_that_no_client_got_is_available_again() {
    let fixture = Fixture::new().await;
    let (_, host) = fixture.idle().await;
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    let returning = fixture.store.return_pool_browser(&leased, Utc::now());
    assert!(returning.await.unwrap().is_some());
    assert_eq!(fixture.counts().await, (1, 0, 0));
    let hosts = fixture.store.pools_overview().await.unwrap().hosts;
    assert_eq!(hosts[&fixture.pool.id][0].lease_count, 0);
    let again = fixture.lease(Claim::NoWaiters).await.unwrap();
    assert_eq!(again.host.id, host);
    assert_ne!(again.row.id, leased.row.id);
    // Its host is lost.
    let life = fixture.store.find_host(&host).await.unwrap().unwrap().life;
    let lost = HostLife {
        state: State::Lost,
        session: None,
        ..life.clone()
    };
    let changed = fixture.store.change_host(&host, &life, &lost, Utc::now());
    assert!(changed.await.unwrap());
    let returning = fixture.store.return_pool_browser(&again, Utc::now());
    assert_eq!(returning.await.unwrap(), None);
    assert_eq!(fixture.counts().await.0, 0);
}

#[tokio::test]
async fn browser_that_no_client_got_leaves_no_lock_of_its_profile() {
    let fixture = Fixture::new().await;
    let (store, project) = (&fixture.store, &fixture.project);
    let profile = store.create_profile(project, Some("shop"), Utc::now());
    let profile = profile.await.unwrap();
    fixture.idle().await;
    let saving = BrowserProfileRow {
        id: profile.id,
        name: profile.name,
        save_changes: true,
    };
    let new_row = |pool: &PoolRow| NewBrowserRow {
        profile: Some(saving.clone()),
        ..new_row(pool)
    };
    let (pool, claim) = (&fixture.pool.id, Claim::NoWaiters);
    let leased = store.lease_pool_browser(pool, claim, new_row, Utc::now());
    let leased = leased.await.unwrap();
    let locked = async || store.browsers_with_write_lock().await.unwrap();
    assert_eq!(locked().await, HashSet::from([leased.row.id.to_string()]));
    let returning = store.return_pool_browser(&leased, Utc::now());
    assert!(returning.await.unwrap().is_some());
    assert_eq!(locked().await, HashSet::new());
}

#[tokio::test]
async fn browser_that_is_returned_after_a_flush_is_not_leased() {
    let fixture = Fixture::new().await;
    let (store, pool) = (&fixture.store, &fixture.pool.id);
    fixture.idle().await;
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    let flushed = store.discard_pool_browsers(pool, None, Utc::now());
    assert_eq!(flushed.await.unwrap(), []);
    let returning = store.return_pool_browser(&leased, Utc::now());
    assert!(returning.await.unwrap().is_some());
    // Nor one that began to start before the flush: its pool was read then.
    fixture.idle().await;
    assert_eq!(fixture.counts().await, (0, 0, 0));
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let overview = store.pools_overview().await.unwrap();
    let summary = &overview.pools[0];
    assert_eq!(overview.browsers[pool].len(), 2);
    assert!(
        overview.browsers[pool]
            .iter()
            .all(|row| !summary.is_current(row))
    );
    let fixture = Fixture {
        pool: store.find_any_pool(pool).await.unwrap().unwrap(),
        ..fixture
    };
    fixture.idle().await;
    assert!(fixture.lease(Claim::NoWaiters).await.is_ok());
}

#[tokio::test]
async fn browser_with_an_older_version_of_the_profile_is_leased_unless_the_pool_refreshes() {
    let fixture = Fixture::new().await;
    let (store, project) = (&fixture.store, &fixture.project);
    let profile = store.create_profile(project, Some("shop"), Utc::now());
    let profile = profile.await.unwrap().id;
    let set_profile = {
        let profile = profile.clone();
        |settings: &mut PoolSettings| settings.config.profile = Some(profile)
    };
    let changing = store.change_pool(&fixture.pool.id, set_profile, Utc::now());
    let pool = changing.await.unwrap();
    let expected = PoolProfile {
        id: profile.clone(),
        name: Some("shop".to_owned()),
    };
    assert_eq!(pool.profile.as_ref(), Some(&expected));
    let fixture = Fixture { pool, ..fixture };
    let (store, pool) = (&fixture.store, &fixture.pool.id);
    fixture.idle().await;
    fixture.idle().await;
    let publish = format!("UPDATE profiles SET version = 1 WHERE id = '{profile}'");
    store.writer.execute_unprepared(&publish).await.unwrap();
    assert_eq!(fixture.counts().await.0, 2);
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    let of_browser = leased.row.profile.unwrap();
    assert_eq!((&of_browser.id, of_browser.save_changes), (&profile, false));
    assert!(!leased.has_own_profile);
    let refresh = |settings: &mut PoolSettings| settings.refresh_on_profile_update = true;
    let changed = store.change_pool(pool, refresh, Utc::now()).await.unwrap();
    assert_eq!(changed.config_hash, fixture.pool.config_hash);
    assert_eq!(fixture.counts().await, (0, 1, 0));
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let overview = store.pools_overview().await.unwrap();
    assert_eq!(overview.pools[0].profile_version, Some(1));
    let (id, host) = (BrowserId::generate(), &leased.host.id);
    store
        .add_pool_browsers(std::slice::from_ref(&id), &changed, Utc::now())
        .await
        .unwrap();
    let idle = store.set_pool_browser_idle(&id, (host, 2), 1, Utc::now());
    assert!(idle.await.unwrap());
    let overview = store.pools_overview().await.unwrap();
    let of_pool = overview.browsers[pool].iter();
    let current: Vec<_> = of_pool
        .filter(|row| overview.pools[0].is_current(row))
        .map(|row| &row.id)
        .collect();
    assert_eq!(current, [&id]);
}

#[tokio::test]
async fn profile_of_a_pool_exists_as_long_as_the_pool() {
    let fixture = Fixture::new().await;
    let (store, project) = (&fixture.store, &fixture.project);
    let unknown = PoolSettings {
        config: PoolConfig {
            profile: Some(ProfileId::generate()),
            ..PoolConfig::sample()
        },
        ..settings(0)
    };
    let refused = store.create_pool(project, unknown, Utc::now()).await;
    assert!(
        matches!(refused, Err(SavePoolError::ProfileNotFound)),
        "{refused:?}"
    );
    let profile = store.create_profile(project, None, Utc::now()).await;
    let profile = profile.unwrap().id;
    let of_profile = PoolSettings {
        config: PoolConfig {
            profile: Some(profile.clone()),
            ..PoolConfig::sample()
        },
        ..settings(0)
    };
    let pool = store.create_pool(project, of_profile, Utc::now()).await;
    let pool = pool.unwrap();
    let delete = async || {
        let deleting = store.delete_profile(project, &profile, Utc::now());
        deleting.await.unwrap()
    };
    let in_use = DeleteProfileOutcome::UsedByPool(pool.id.to_string());
    assert_eq!(delete().await, in_use);
    store.delete_pool(&pool.id, false).await.unwrap();
    assert_eq!(delete().await, DeleteProfileOutcome::Deleted(Vec::new()));
}

#[tokio::test]
async fn list_of_a_project_uses_an_index() {
    let fixture = Fixture::new().await;
    let db = &fixture.store.db;
    let query = in_order(of_project(&fixture.project)).limit(21);
    let plan = explain(db, query.build(db.get_database_backend())).await;
    assert!(plan.contains("pools_of_a_project"), "{plan}");
    assert!(!is_sorting(&plan), "{plan}");
}

#[tokio::test]
async fn concurrent_leases_get_different_browsers() {
    let fixture = Fixture::new().await;
    fixture.resize(8).await;
    for _ in 0..8 {
        fixture.idle().await;
    }
    let leased = join_all((0..16).map(|_| fixture.lease(Claim::NoWaiters))).await;
    let hosts: Vec<HostId> = leased
        .iter()
        .filter_map(|leased| Some(leased.as_ref().ok()?.host.id.clone()))
        .collect();
    assert_eq!(hosts.iter().collect::<HashSet<_>>().len(), hosts.len());
    // On PostgreSQL a lease in progress may hide the last one.
    let again = join_all((hosts.len()..8).map(|_| fixture.lease(Claim::NoWaiters))).await;
    assert!(again.iter().all(Result::is_ok), "{again:?}");
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    assert_eq!(fixture.counts().await, (0, 8, 0));
}

#[tokio::test]
async fn browser_of_an_older_configuration_is_not_leased() {
    let fixture = Fixture::new().await;
    fixture.idle().await;
    let change = |settings: &mut PoolSettings| settings.config.kiosk_mode = true;
    let changing = fixture
        .store
        .change_pool(&fixture.pool.id, change, Utc::now());
    changing.await.unwrap();
    assert_eq!(fixture.counts().await, (0, 0, 0));
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let change = |settings: &mut PoolSettings| settings.config.kiosk_mode = false;
    let changing = fixture
        .store
        .change_pool(&fixture.pool.id, change, Utc::now());
    changing.await.unwrap();
    assert!(fixture.lease(Claim::NoWaiters).await.is_ok());
}

#[tokio::test]
async fn discarded_browser_is_not_leased_and_a_leased_one_is_not_discarded() {
    let fixture = Fixture::new().await;
    let (first, _) = fixture.idle().await;
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    let (second, _) = fixture.idle().await;
    let discard = async |only: Option<&BrowserId>| {
        let discarding = fixture
            .store
            .discard_pool_browsers(&fixture.pool.id, only, Utc::now());
        let discarded = discarding.await.unwrap();
        let ids = discarded.into_iter().map(|row| row.id);
        ids.collect::<Vec<_>>()
    };
    assert_eq!(discard(Some(&first)).await, []);
    assert_eq!(discard(Some(&leased.row.id)).await, []);
    assert_eq!(discard(None).await, [second]);
    assert_eq!(discard(None).await, []);
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    assert_eq!(fixture.counts().await, (0, 1, 0));
}

#[tokio::test]
async fn clients_are_served_in_the_order_of_their_tickets() {
    let fixture = Fixture::new().await;
    let (store, pool) = (&fixture.store, &fixture.pool.id);
    let first = store.add_waiter(pool).await.unwrap();
    let second = store.add_waiter(pool).await.unwrap();
    assert!(first < second);
    fixture.idle().await;
    assert_eq!(
        &store.pools_to_serve().await.unwrap()[..],
        std::slice::from_ref(pool)
    );
    assert_eq!(fixture.counts().await, (1, 0, 2));
    // A client that does not wait comes after those that do.
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    let waiter = store.first_waiter(pool).await.unwrap().unwrap();
    assert_eq!((waiter.ticket, waiter.process), (first, store.process()));
    fixture.lease(Claim::First(first)).await.unwrap();
    assert_eq!(store.pools_to_serve().await.unwrap(), []);
    let waiter = store.first_waiter(pool).await.unwrap().unwrap();
    assert_eq!(waiter.ticket, second);
    // Without a browser the client keeps its place.
    assert!(is_none_available(
        &fixture.lease(Claim::First(second)).await
    ));
    assert_eq!(fixture.counts().await, (0, 1, 1));
    store.restore_waiter(pool, first).await.unwrap();
    store.restore_waiter(pool, first).await.unwrap();
    let waiter = store.first_waiter(pool).await.unwrap().unwrap();
    assert_eq!(waiter.ticket, first);
    store.remove_waiters(pool, &[first, second]).await.unwrap();
    assert_eq!(store.first_waiter(pool).await.unwrap(), None);
}

#[tokio::test]
async fn places_of_clients_are_lost_with_their_process() {
    let fixture = Fixture::new().await;
    let (store, pool) = (&fixture.store, &fixture.pool.id);
    store.add_waiter(pool).await.unwrap();
    let live = HashSet::from([store.process().unwrap()]);
    assert!(store.remove_lost_waiters(&live).await.unwrap().is_empty());
    let lost = store.remove_lost_waiters(&HashSet::new()).await.unwrap();
    assert_eq!(lost, HashSet::from([pool.clone()]));
    assert_eq!(fixture.counts().await.2, 0);
}

#[tokio::test]
async fn sizes_of_pools_count_towards_the_limit_of_the_project() {
    let fixture = Fixture::new().await;
    let (store, project) = (&fixture.store, &fixture.project);
    let set = format!("UPDATE projects SET max_concurrent_sessions = 6 WHERE id = '{project}'");
    store.writer.execute_unprepared(&set).await.unwrap();
    let create = async |size| store.create_pool(project, settings(size), Utc::now()).await;
    assert!(matches!(
        create(3).await,
        Err(SavePoolError::LimitReached(6))
    ));
    let other = create(1).await.unwrap();
    let grow = |settings: &mut PoolSettings| settings.size = 3;
    let grown = store.change_pool(&other.id, grow, Utc::now()).await;
    assert!(matches!(grown, Err(SavePoolError::LimitReached(6))));
    let new = || NewBrowserRow::sample(project);
    store.create_browser(new(), Utc::now()).await.unwrap();
    let refused = store.create_browser(new(), Utc::now()).await;
    let limit = crate::control::store::CreateBrowserError::LimitReached(6);
    assert_eq!(refused.unwrap_err().to_string(), limit.to_string());
    // A lease is counted once: in the size of its pool.
    fixture.idle().await;
    fixture.lease(Claim::NoWaiters).await.unwrap();
    let shrink = |settings: &mut PoolSettings| settings.size = 0;
    store
        .change_pool(&other.id, shrink, Utc::now())
        .await
        .unwrap();
    store.create_browser(new(), Utc::now()).await.unwrap();
}

#[tokio::test]
async fn pool_that_has_become_smaller_leases_no_more_than_its_size() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        fixture.idle().await;
    }
    fixture.lease(Claim::NoWaiters).await.unwrap();
    // Two are idle until they are discarded.
    fixture.resize(1).await;
    assert!(is_none_available(&fixture.lease(Claim::NoWaiters).await));
    fixture.resize(2).await;
    let leases = join_all((0..4).map(|_| fixture.lease(Claim::NoWaiters))).await;
    let leased = leases.iter().filter(|lease| lease.is_ok()).count();
    assert_eq!(leased, 1);
    assert_eq!(fixture.counts().await, (1, 2, 0));
}

#[tokio::test]
async fn leased_browsers_prevent_the_deletion_of_a_pool() {
    let fixture = Fixture::new().await;
    let (store, pool) = (&fixture.store, &fixture.pool.id);
    fixture.idle().await;
    fixture.idle().await;
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap().row.id;
    store.add_waiter(pool).await.unwrap();
    let delete = async |force| store.delete_pool(pool, force).await.unwrap();
    assert_eq!(delete(false).await, DeletePoolOutcome::Leased(1));
    assert_eq!(delete(true).await, DeletePoolOutcome::Deleted(vec![leased]));
    assert_eq!(delete(true).await, DeletePoolOutcome::NotFound);
    assert_eq!(store.first_waiter(pool).await.unwrap(), None);
    let lease = fixture.lease(Claim::NoWaiters).await;
    assert!(matches!(lease, Err(PoolLeaseError::NoPool)));
    // What it had is left to the task that fills pools.
    let overview = store.pools_overview().await.unwrap();
    assert!(overview.pools.is_empty());
    assert_eq!(overview.hosts[pool].len(), 2);
    assert_eq!(overview.browsers[pool].len(), 1);
}

#[tokio::test]
async fn host_of_an_idle_browser_is_not_abandoned() {
    let fixture = Fixture::new().await;
    let (idle, host) = fixture.idle().await;
    let later = Utc::now() + chrono::TimeDelta::hours(1);
    let abandoned = async || fixture.store.abandoned_hosts(later).await.unwrap();
    assert_eq!(abandoned().await, []);
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap();
    assert_eq!(abandoned().await, []);
    let store = &fixture.store;
    let published = store.publish_browser(&leased.row.id, &host, 1, Utc::now());
    assert!(published.await.unwrap());
    let reason = EndReason::Deleted;
    store
        .close_browser(&leased.row.id, reason, Utc::now())
        .await
        .unwrap();
    assert_eq!(abandoned().await, [(host, leased.row.id)]);
    assert!(!store.remove_pool_browser(&idle).await.unwrap());
}

#[tokio::test]
async fn name_is_unique_in_the_project_and_follows_to_its_browsers() {
    let fixture = Fixture::new().await;
    let (store, project) = (&fixture.store, &fixture.project);
    let named = |name: &str| PoolSettings {
        name: Some(name.to_owned()),
        ..settings(0)
    };
    store
        .create_pool(project, named("a"), Utc::now())
        .await
        .unwrap();
    let taken = store.create_pool(project, named("a"), Utc::now()).await;
    let expected = UniqueConstraint::PoolName;
    assert!(
        matches!(taken, Err(SavePoolError::Store(StoreError::UniqueViolation(found))) if found == expected),
        "{taken:?}"
    );
    let rename = |name: &'static str| {
        move |settings: &mut PoolSettings| settings.name = Some(name.to_owned())
    };
    let pool = &fixture.pool.id;
    let taken = store.change_pool(pool, rename("a"), Utc::now()).await;
    assert!(
        matches!(taken, Err(SavePoolError::Store(StoreError::UniqueViolation(found))) if found == expected),
        "{taken:?}"
    );
    let (_, host) = fixture.idle().await;
    let leased = fixture.lease(Claim::NoWaiters).await.unwrap().row;
    assert_eq!(leased.pool.unwrap().name, None);
    let published = store.publish_browser(&leased.id, &host, 1, Utc::now());
    assert!(published.await.unwrap());
    store
        .change_pool(pool, rename("b"), Utc::now())
        .await
        .unwrap();
    let row = store.find_browser(project, &leased.id, Default::default());
    let row = row.await.unwrap().unwrap();
    assert_eq!(row.pool.unwrap().name.as_deref(), Some("b"));
    let found = store.find_pool_named(project, "b").await.unwrap().unwrap();
    assert_eq!(found.id, *pool);
    let other = ProjectId::generate();
    assert_eq!(store.find_pool(&other, pool).await.unwrap(), None);
    assert_eq!(store.find_pool_named(&other, "b").await.unwrap(), None);
}
