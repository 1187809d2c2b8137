//! Tests of the table of browsers.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use super::*;
use crate::{
    api::ids::HostId,
    control::store::{NewProcess, Store, UniqueConstraint, test_database::TestDatabase},
};

async fn store() -> (TestDatabase, Store, ProjectId) {
    let database = TestDatabase::create();
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (database, store, project.id)
}

fn new(project: &ProjectId, name: Option<&str>) -> NewBrowserRow {
    NewBrowserRow {
        name: name.map(str::to_owned),
        tags: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        ..NewBrowserRow::sample(project)
    }
}

async fn publish(store: &Store, new: NewBrowserRow) -> BrowserRow {
    let row = store.create_browser(new, Utc::now()).await.unwrap();
    assert!(
        store
            .publish_browser(&row.id, &HostId::generate(), 1, Utc::now())
            .await
            .unwrap()
    );
    row
}

#[tokio::test]
async fn browser_is_found_from_publication_to_purge() {
    let (_database, store, project) = store().await;
    let now = Utc::now();
    let created = store
        .create_browser(new(&project, Some("n")), now)
        .await
        .unwrap();
    let find = async |filter| {
        store
            .find_browser(&project, &created.id, filter)
            .await
            .unwrap()
    };
    assert_eq!(find(StateFilter::All).await, None);
    assert!(
        store
            .publish_browser(&created.id, &HostId::generate(), 1, Utc::now())
            .await
            .unwrap()
    );
    let active = find(StateFilter::Active).await.unwrap();
    assert_eq!((active.state, &active.tags), (State::Active, &created.tags));
    assert_eq!(find(StateFilter::Deleted).await, None);

    let reason = EndReason::Idle;
    for is_first in [true, false] {
        let withdrawn = store.withdraw_browser(&created.id, reason, now).await;
        assert_eq!(withdrawn.unwrap(), is_first);
    }
    assert_eq!(find(StateFilter::Active).await, None);
    assert_eq!(
        find(StateFilter::Deleted).await.unwrap().state,
        State::Deleting(reason)
    );
    let unfinished = async || {
        let found = store.unfinished_browsers().await;
        found.unwrap().len()
    };
    assert_eq!(unfinished().await, 1);
    store
        .close_browser(&created.id, EndReason::Gone, Utc::now())
        .await
        .unwrap();
    assert_eq!(unfinished().await, 0);
    let ended = find(StateFilter::All).await.unwrap();
    assert_eq!(ended.state, State::Deleted(reason));
    assert_eq!(
        ended.deleted_at.unwrap().timestamp_millis(),
        now.timestamp_millis()
    );
    assert!(
        !store
            .publish_browser(&created.id, &HostId::generate(), 1, Utc::now())
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn taken_idempotency_key_and_taken_name_are_different_violations() {
    let (_database, store, project) = store().await;
    let with_key = |name| NewBrowserRow {
        idempotency: Some(Creation {
            key: "k".to_owned(),
            request_digest: [0; 32],
        }),
        ..new(&project, Some(name))
    };
    store
        .create_browser(with_key("a"), Utc::now())
        .await
        .unwrap();
    let same_key = store.create_browser(with_key("b"), Utc::now()).await;
    assert!(
        matches!(
            same_key,
            Err(CreateBrowserError::Store(StoreError::UniqueViolation(
                UniqueConstraint::BrowserIdempotencyKey
            )))
        ),
        "{same_key:?}"
    );
    let same_name = new(&project, Some("a"));
    let same_name = store.create_browser(same_name, Utc::now()).await;
    assert!(
        matches!(
            same_name,
            Err(CreateBrowserError::Store(StoreError::UniqueViolation(
                UniqueConstraint::BrowserLiveName
            )))
        ),
        "{same_name:?}"
    );
}

#[tokio::test]
async fn name_is_unique_among_live_browsers_of_a_project() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let first = publish(&store, new(&project, Some("n"))).await;
    let rejected = store.create_browser(new(&project, Some("n")), Utc::now());
    assert!(matches!(
        rejected.await,
        Err(CreateBrowserError::Store(StoreError::UniqueViolation(
            UniqueConstraint::BrowserLiveName
        )))
    ));
    publish(&store, new(&other, Some("n"))).await;
    let unnamed = publish(&store, new(&project, None)).await;
    publish(&store, new(&project, None)).await;

    let rename = Change {
        name: Some("n".to_owned()),
        tags: Some(BTreeMap::new()),
        ..Change::default()
    };
    let rejected = store.change_browser(&unnamed.id, rename.clone()).await;
    assert!(matches!(
        rejected,
        Err(StoreError::UniqueViolation(
            UniqueConstraint::BrowserLiveName
        ))
    ));
    // A rejected change is rolled back and releases the write lock.
    let found = store.find_browser(&project, &unnamed.id, StateFilter::All);
    assert_eq!(found.await.unwrap().unwrap().tags, unnamed.tags);

    let now = Utc::now();
    store
        .withdraw_browser(&first.id, EndReason::Deleted, now)
        .await
        .unwrap();
    let renamed = store.change_browser(&unnamed.id, rename).await.unwrap();
    assert_eq!(renamed.unwrap().name.as_deref(), Some("n"));
    let found = store.find_browser_named(&project, "n", StateFilter::All);
    assert_eq!(found.await.unwrap().unwrap().id, unnamed.id);
    let found = store.find_browser_named(&project, "n", StateFilter::Deleted);
    assert_eq!(found.await.unwrap().unwrap().id, first.id);
}

#[tokio::test]
async fn idempotency_key_is_free_again_after_its_window() {
    let (_database, store, project) = store().await;
    let creation = Creation {
        key: "k".to_owned(),
        request_digest: [7; 32],
    };
    let with_key = || NewBrowserRow {
        idempotency: Some(creation.clone()),
        ..new(&project, None)
    };
    let first = publish(&store, with_key()).await;
    let again = store.create_browser(with_key(), Utc::now()).await;
    assert!(matches!(
        again,
        Err(CreateBrowserError::Store(StoreError::UniqueViolation(
            UniqueConstraint::BrowserIdempotencyKey
        )))
    ));
    let since = Utc::now() - TimeDelta::minutes(10);
    let found = store.find_creation(&project, "k", since).await.unwrap();
    let (row, digest) = found.unwrap();
    assert_eq!((row.id, digest), (first.id, vec![7; 32]));

    let later = Utc::now() + TimeDelta::minutes(10);
    assert_eq!(
        store.find_creation(&project, "k", later).await.unwrap(),
        None
    );
    let second = publish(&store, with_key()).await;

    // Its client did not get it.
    store.forget_creation(&second.id).await.unwrap();
    let found = store.find_creation(&project, "k", since).await;
    assert_eq!(found.unwrap(), None);
    publish(&store, with_key()).await;
}

#[tokio::test]
async fn failed_start_leaves_no_row() {
    let (_database, store, project) = store().await;
    let created = store
        .create_browser(new(&project, Some("n")), Utc::now())
        .await
        .unwrap();
    store.delete_creating_browser(&created.id).await.unwrap();
    assert_eq!(store.unfinished_browsers().await.unwrap(), []);
    let again = publish(&store, new(&project, Some("n"))).await;
    // An active browser keeps its row.
    store.delete_creating_browser(&again.id).await.unwrap();
    let active = store.active_browser_ids(None).await.unwrap();
    assert_eq!(active, [again.id]);
}

#[tokio::test]
async fn purge_deletes_only_browsers_that_ended_before_the_limit() {
    let (_database, store, project) = store().await;
    let (live, old) = (new(&project, None), new(&project, None));
    let (live, old) = (publish(&store, live).await, publish(&store, old).await);
    let then = Utc::now();
    let reason = EndReason::Deleted;
    assert!(store.withdraw_browser(&old.id, reason, then).await.unwrap());
    let later = then + TimeDelta::milliseconds(1);
    // The host is still being stopped.
    assert_eq!(store.purge_browsers(later).await.unwrap(), 0);
    store.close_browser(&old.id, reason, then).await.unwrap();
    assert_eq!(store.purge_browsers(then).await.unwrap(), 0);
    assert_eq!(store.purge_browsers(later).await.unwrap(), 1);
    for (id, found) in [(old.id, false), (live.id, true)] {
        let row = store.find_browser(&project, &id, StateFilter::All);
        assert_eq!(row.await.unwrap().is_some(), found);
    }
}

#[tokio::test]
async fn browser_is_closed_although_its_end_was_not_recorded_before() {
    let (_database, store, project) = store().await;
    let browser = publish(&store, new(&project, Some("n"))).await;
    let now = Utc::now();
    let close = store.close_browser(&browser.id, EndReason::Idle, now);
    close.await.unwrap();
    // The retried statement is the later one.
    let withdraw = store.withdraw_browser(&browser.id, EndReason::Idle, now);
    assert!(!withdraw.await.unwrap());
    let row = store.find_browser(&project, &browser.id, StateFilter::Deleted);
    let row = row.await.unwrap().unwrap();
    assert_eq!(row.state, State::Deleted(EndReason::Idle));
    assert_eq!(
        row.deleted_at.unwrap().timestamp_millis(),
        now.timestamp_millis()
    );
    publish(&store, new(&project, Some("n"))).await;
}

#[tokio::test]
async fn reopened_database_keeps_rows_and_one_default_project() {
    let (database, store, project) = store().await;
    let created = publish(&store, new(&project, None)).await;
    store.close().await.unwrap();
    let store = database.open().await;
    let default = store.default_project("default", Utc::now()).await.unwrap();
    assert_eq!(default.id, project);
    let listing = Listing {
        limit: 10,
        ..Listing::default()
    };
    let listed = store.list_browsers(&project, &listing).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, created.id);
}

#[tokio::test]
async fn concurrent_writers_all_succeed() {
    let (_database, store, project) = store().await;
    let all = (0..50).map(|_| publish(&store, new(&project, None)));
    assert_eq!(futures::future::join_all(all).await.len(), 50);
}

#[tokio::test]
async fn used_browser_is_not_withdrawn_as_idle() {
    let (_database, store, project) = store().await;
    let browser = publish(&store, new(&project, None)).await;
    let used_at = Utc::now() + TimeDelta::minutes(1);
    let used = [browser.id.clone()];
    store.record_browser_use(&used, used_at).await.unwrap();
    // Of another process, which was slow.
    let earlier = used_at - TimeDelta::seconds(9);
    store.record_browser_use(&used, earlier).await.unwrap();
    let withdraw = async |unused_since| {
        let withdrawn = store.withdraw_unused_browser(&browser.id, unused_since, Utc::now());
        withdrawn.await.unwrap()
    };
    assert!(!withdraw(used_at - TimeDelta::milliseconds(1)).await);
    assert!(withdraw(used_at).await);
    assert!(!withdraw(used_at).await);
    assert_eq!(store.find_active_browser(&browser.id).await.unwrap(), None);
    store.close().await.unwrap();
}

#[tokio::test]
async fn row_names_the_process_that_creates_or_ends_the_browser() {
    let (_database, store, project) = store().await;
    let sample = NewProcess::sample;
    let first = store.begin_process(sample("a")).await.unwrap();
    let second = store.begin_process(sample("b")).await.unwrap();
    let starting = first.create_browser(new(&project, None), Utc::now());
    let starting = starting.await.unwrap().id;
    let of_second = second.create_browser(new(&project, None), Utc::now());
    let of_second = of_second.await.unwrap();
    let active = publish(&first, new(&project, None)).await;
    let unfinished = async || {
        let found = store.unfinished_browsers().await.unwrap().into_iter();
        let found = found.map(|browser| (browser.id, browser.is_creating, browser.process));
        found.collect::<BTreeSet<_>>()
    };
    let [first_id, second_id] = [&first, &second].map(Store::process);
    let creating = [(starting, true, first_id), (of_second.id, true, second_id)];
    assert_eq!(unfinished().await, BTreeSet::from(creating.clone()));
    let listed = store.active_browser_ids(Some(&project)).await.unwrap();
    assert_eq!(listed, std::slice::from_ref(&active.id));
    // The process that ends a browser is not the one that has created it.
    let withdrawn = second.withdraw_browser(&active.id, EndReason::Idle, Utc::now());
    assert!(withdrawn.await.unwrap());
    let ending = (active.id.clone(), false, second_id);
    let expected = creating.into_iter().chain([ending]).collect();
    assert_eq!(unfinished().await, expected);
    for (process, is_own) in [(&first, false), (&second, true), (&store, false)] {
        let found = process.is_withdrawn_here(&active.id).await.unwrap();
        assert_eq!(found, is_own);
    }
    store.close().await.unwrap();
}
