//! Tests of the tables of profiles.

use std::collections::BTreeMap;

use sea_orm::QueryTrait;

use super::*;
use crate::{
    api::ids::{BrowserId, HostId},
    control::{
        browsers::state::EndReason,
        store::{
            AttachProfileError, BrowserProfileRow, CreateBrowserError, NewBrowserRow, NewProcess,
            ProjectOutcome, UniqueConstraint,
            test_database::{TestDatabase, explain, is_sorting},
        },
    },
};

async fn store() -> (TestDatabase, Store, ProjectId) {
    let database = TestDatabase::create();
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (database, store, project.id)
}

async fn profile(store: &Store, project: &ProjectId) -> ProfileId {
    let created = store.create_profile(project, None, Utc::now()).await;
    created.unwrap().id
}

fn new_version(blob: &str) -> NewProfileVersion {
    NewProfileVersion {
        blob: blob.to_owned(),
        size_bytes: 7,
        content: ArchiveContent {
            cookies: BTreeMap::from([("a.test".to_owned(), 2)]),
            origins: vec!["https://a.test".to_owned()],
            skipped: Vec::new(),
        },
        chromium_version: Some("140.0".to_owned()),
    }
}

async fn begin(store: &Store, profile: &ProfileId, source: SaveSource<'_>) -> BeginSave {
    let id = ulid::Ulid::generate().to_string();
    let begun = store.begin_profile_save(id, profile, source, Utc::now());
    begun.await.unwrap()
}

async fn started(store: &Store, profile: &ProfileId) -> ProfileSave {
    match begin(store, profile, SaveSource::Upload).await {
        BeginSave::Started(save) => save,
        other => panic!("{other:?}"),
    }
}

async fn publish(store: &Store, profile: &ProfileId, blob: &str) -> PublishedVersion {
    let save = started(store, profile).await;
    let published = store.publish_profile_version(&save, new_version(blob), 2, Utc::now());
    published.await.unwrap().unwrap()
}

fn browser(project: &ProjectId, profile: &ProfileId, save_changes: bool) -> NewBrowserRow {
    NewBrowserRow {
        profile: Some(BrowserProfileRow {
            id: profile.clone(),
            name: None,
            save_changes,
        }),
        ..NewBrowserRow::sample(project)
    }
}

async fn published_browser(store: &Store, new: NewBrowserRow) -> BrowserId {
    let row = store.create_browser(new, Utc::now()).await.unwrap();
    let host = HostId::generate();
    let published = store.publish_browser(&row.id, &host, 1, Utc::now());
    assert!(published.await.unwrap());
    row.id
}

#[tokio::test]
async fn published_version_is_current_and_oldest_are_retired() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    assert_eq!(
        store.find_current_profile_version(&profile).await.unwrap(),
        None
    );
    for (number, blob, retired) in [(1, "a", vec![]), (2, "b", vec![]), (3, "c", vec!["a"])] {
        let published = publish(&store, &profile, blob).await;
        let retired: Vec<String> = retired.into_iter().map(str::to_owned).collect();
        assert_eq!(
            (published.number, published.retired_blobs),
            (number, retired)
        );
    }
    let current = store.find_current_profile_version(&profile).await.unwrap();
    let current = current.unwrap();
    assert_eq!((current.number, current.blob.as_str()), (3, "c"));
    assert_eq!(current.content, new_version("c").content);
    let row = store
        .find_profile(&project, &profile)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((row.version, row.size_bytes), (3, Some(7)));
    let listed = store.list_profile_versions(&profile, 0, 1).await.unwrap();
    let numbers: Vec<u64> = listed.iter().map(|version| version.number).collect();
    assert_eq!(numbers, [3, 2]);
}

#[tokio::test]
async fn version_of_a_health_check_replaces_that_of_the_one_before() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    let browser = published_browser(&store, browser(&project, &profile, false)).await;
    let sources = [
        SaveSource::Upload,
        SaveSource::HealthCheck(&browser),
        SaveSource::HealthCheck(&browser),
        SaveSource::HealthCheck(&browser),
        SaveSource::Browser(&browser),
        SaveSource::HealthCheck(&browser),
    ];
    let mut retired = Vec::new();
    for (index, source) in sources.into_iter().enumerate() {
        let BeginSave::Started(save) = begin(&store, &profile, source).await else {
            panic!("the save is refused");
        };
        let new = new_version(&format!("blob-{}", index + 1));
        let published = store.publish_profile_version(&save, new, 3, Utc::now());
        retired.push(published.await.unwrap().unwrap().retired_blobs);
    }
    let expected: [&[&str]; 6] = [&[], &[], &["blob-2"], &["blob-3"], &[], &["blob-4"]];
    assert_eq!(retired, expected);
    let listed = store.list_profile_versions(&profile, 0, 20).await.unwrap();
    let numbers: Vec<u64> = listed.iter().map(|version| version.number).collect();
    assert_eq!(numbers, [6, 5, 1]);
}

#[tokio::test]
async fn profile_has_one_save_at_a_time_and_an_ended_one_publishes_nothing() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    let first = started(&store, &profile).await;
    assert_eq!(
        begin(&store, &profile, SaveSource::Upload).await,
        BeginSave::InUse
    );
    let outcome = store.create_browser(browser(&project, &profile, true), Utc::now());
    assert!(matches!(
        outcome.await,
        Err(CreateBrowserError::ProfileBeingSaved)
    ));
    let plain = published_browser(&store, NewBrowserRow::sample(&project)).await;
    let selected = selected(&profile, true);
    let outcome = store.begin_profile_attachment("1", &plain, &selected, Utc::now());
    assert!(matches!(outcome.await, Err(AttachProfileError::BeingSaved)));
    // The process of the first save counts as dead.
    store.end_profile_operation(&first.id).await.unwrap();
    publish(&store, &profile, "b").await;
    let late = store.publish_profile_version(&first, new_version("a"), 2, Utc::now());
    assert_eq!(late.await.unwrap(), None);
    assert!(!store.set_save_blob(&first, "a").await.unwrap());
    let current = store.find_current_profile_version(&profile).await.unwrap();
    assert_eq!(current.unwrap().blob, "b");
}

#[tokio::test]
async fn save_of_an_older_version_publishes_nothing() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    let save = started(&store, &profile).await;
    // As if the row of the save had been there all the time.
    let stale = ProfileSave {
        base_version: 1,
        ..save
    };
    let late = store.publish_profile_version(&stale, new_version("a"), 2, Utc::now());
    assert_eq!(late.await.unwrap(), None);
    // The transaction has not ended the save.
    assert_eq!(store.profile_operations().await.unwrap().len(), 1);
}

#[tokio::test]
async fn only_one_browser_may_save_a_profile_until_it_has_ended() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    let first = published_browser(&store, browser(&project, &profile, true)).await;
    let second = store.create_browser(browser(&project, &profile, true), Utc::now());
    assert!(matches!(
        second.await,
        Err(CreateBrowserError::ProfileInUse)
    ));
    let reader = published_browser(&store, browser(&project, &profile, false)).await;
    for source in [SaveSource::Upload, SaveSource::Browser(&reader)] {
        assert_eq!(begin(&store, &profile, source).await, BeginSave::InUse);
    }
    let ending = SaveSource::EndingBrowser(&reader);
    assert_eq!(begin(&store, &profile, ending).await, BeginSave::InUse);
    let withdrawn = store.withdraw_browser(&first, EndReason::Deleted, Utc::now());
    assert!(withdrawn.await.unwrap());
    assert_eq!(
        store.saved_profile_of(&first).await.unwrap(),
        Some(profile.clone())
    );
    let own = begin(&store, &profile, SaveSource::EndingBrowser(&first)).await;
    let BeginSave::Started(own) = own else {
        panic!("{own:?}");
    };
    store.end_profile_operation(&own.id).await.unwrap();
    let closed = store.close_browser(&first, EndReason::Deleted, Utc::now());
    closed.await.unwrap();
    published_browser(&store, browser(&project, &profile, true)).await;
}

#[tokio::test]
async fn browser_gets_no_profile_of_another_project_and_no_deleted_one() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let foreign = profile(&store, &other).await;
    let deleted = profile(&store, &project).await;
    let outcome = store.delete_profile(&project, &deleted, Utc::now());
    assert_eq!(
        outcome.await.unwrap(),
        DeleteProfileOutcome::Deleted(Vec::new())
    );
    for profile in [foreign, deleted, ProfileId::generate()] {
        let refused = store.create_browser(browser(&project, &profile, false), Utc::now());
        assert!(matches!(
            refused.await,
            Err(CreateBrowserError::ProfileNotFound)
        ));
    }
}

#[tokio::test]
async fn profile_in_use_is_not_deleted_and_keeps_its_project() {
    let (_database, store, project) = store().await;
    let other = store.create_project("other", Utc::now()).await.unwrap().id;
    let name = Some("shop");
    let created = store.create_profile(&other, name, Utc::now()).await;
    let profile = created.unwrap().id;
    publish(&store, &profile, "a").await;
    let delete = async || {
        let deleted = store.delete_profile(&other, &profile, Utc::now());
        deleted.await.unwrap()
    };
    let foreign = store.delete_profile(&project, &profile, Utc::now());
    assert_eq!(foreign.await.unwrap(), DeleteProfileOutcome::NotFound);
    let save = started(&store, &profile).await;
    assert_eq!(delete().await, DeleteProfileOutcome::InUse);
    store.end_profile_operation(&save.id).await.unwrap();
    let reader = published_browser(&store, browser(&other, &profile, false)).await;
    assert_eq!(delete().await, DeleteProfileOutcome::InUse);
    let closed = store.close_browser(&reader, EndReason::Deleted, Utc::now());
    closed.await.unwrap();
    assert_eq!(
        store.delete_project(&other, Utc::now()).await.unwrap(),
        ProjectOutcome::NotEmpty
    );
    let blobs = vec!["a".to_owned()];
    assert_eq!(delete().await, DeleteProfileOutcome::Deleted(blobs));
    assert_eq!(delete().await, DeleteProfileOutcome::NotFound);
    // The name is free.
    let again = store.create_profile(&other, name, Utc::now()).await;
    let taken = store.create_profile(&other, name, Utc::now()).await;
    assert!(matches!(
        taken,
        Err(CreateProfileError::Store(StoreError::UniqueViolation(
            UniqueConstraint::ProfileLiveName
        )))
    ));
    let again = again.unwrap().id;
    let deleted = store.delete_profile(&other, &again, Utc::now());
    assert!(matches!(
        deleted.await.unwrap(),
        DeleteProfileOutcome::Deleted(_)
    ));
    assert_eq!(
        store.delete_project(&other, Utc::now()).await.unwrap(),
        ProjectOutcome::Done(())
    );
    let later = Utc::now() + chrono::TimeDelta::seconds(1);
    assert_eq!(store.purge_profiles(later).await.unwrap(), 2);
}

#[tokio::test]
async fn restored_version_is_a_new_one_with_the_same_archive() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    publish(&store, &profile, "a").await;
    publish(&store, &profile, "b").await;
    let restore = async |number| {
        let restored = store.restore_profile_version(&profile, number, 2, Utc::now());
        restored.await.unwrap()
    };
    for unknown in [0, 3, u64::MAX] {
        assert_eq!(restore(unknown).await, RestoreOutcome::VersionNotFound);
    }
    let save = started(&store, &profile).await;
    assert_eq!(restore(1).await, RestoreOutcome::InUse);
    store.end_profile_operation(&save.id).await.unwrap();
    let RestoreOutcome::Published {
        version,
        retired_blobs,
    } = restore(1).await
    else {
        panic!("not restored");
    };
    assert_eq!((version.number, version.blob.as_str()), (3, "a"));
    assert_eq!(version.restored_from, Some(1));
    // The archive of the first version, which the third one has, too.
    assert_eq!(retired_blobs, ["a"]);
    assert!(!store.begin_blob_removal("a", Utc::now()).await.unwrap());
    assert_eq!(store.blob_removals().await.unwrap(), []);
}

#[tokio::test]
async fn archive_is_not_removed_while_anything_needs_it() {
    let (_database, store, project) = store().await;
    let profile = profile(&store, &project).await;
    let remove = async |blob: &str| store.begin_blob_removal(blob, Utc::now()).await.unwrap();
    let save = started(&store, &profile).await;
    assert!(store.set_save_blob(&save, "a").await.unwrap());
    assert!(!remove("a").await);
    let published = store.publish_profile_version(&save, new_version("a"), 1, Utc::now());
    published.await.unwrap().unwrap();
    assert!(!remove("a").await);
    let id = "load".to_owned();
    let load = store.begin_profile_load(id, &profile, Utc::now()).await;
    assert_eq!(load.unwrap().unwrap().version.blob, "a");
    publish_with_one_kept(&store, &profile).await;
    // No version has it any more, but the load.
    assert!(!remove("a").await);
    store.end_profile_operation("load").await.unwrap();
    assert!(remove("a").await);
    // Another process does not remove it at the same time.
    assert!(!remove("a").await);
    store.end_blob_removal("a").await.unwrap();
    assert_eq!(store.blob_removals().await.unwrap(), []);
    let stored = vec!["a".to_owned(), "b".to_owned()];
    let unused = store.blobs_without_version(stored).await.unwrap();
    assert_eq!(unused, ["a"]);
}

async fn publish_with_one_kept(store: &Store, profile: &ProfileId) {
    let save = started(store, profile).await;
    let published = store.publish_profile_version(&save, new_version("b"), 1, Utc::now());
    let published = published.await.unwrap().unwrap();
    assert_eq!(published.retired_blobs, ["a"]);
}

#[tokio::test]
async fn removal_of_a_dead_process_is_adopted_once() {
    let (_database, store, _) = store().await;
    let first = store.begin_process(NewProcess::sample("a")).await.unwrap();
    let second = store.begin_process(NewProcess::sample("b")).await.unwrap();
    assert!(first.begin_blob_removal("a", Utc::now()).await.unwrap());
    let removals = store.blob_removals().await.unwrap();
    let [removal] = &removals[..] else {
        panic!("{removals:?}");
    };
    assert_eq!(removal.process, first.process());
    assert!(second.adopt_blob_removal(removal).await.unwrap());
    assert!(!second.adopt_blob_removal(removal).await.unwrap());
}

#[tokio::test]
async fn browser_has_the_name_of_its_profile() {
    let (_database, store, project) = store().await;
    let created = store.create_profile(&project, Some("shop"), Utc::now());
    let profile = created.await.unwrap().id;
    let id = published_browser(&store, browser(&project, &profile, true)).await;
    let renamed = store.rename_profile(&project, &profile, "mall", Utc::now());
    assert_eq!(
        renamed.await.unwrap().unwrap().name.as_deref(),
        Some("mall")
    );
    let filter = crate::control::store::StateFilter::Active;
    let found = store.find_browser(&project, &id, filter).await.unwrap();
    let found = found.unwrap().profile.unwrap();
    assert_eq!(found.name.as_deref(), Some("mall"));
    assert!(found.save_changes);
    let listing = crate::control::store::Listing {
        limit: 1,
        ..Default::default()
    };
    let listed = store.list_browsers(&project, &listing).await.unwrap();
    assert_eq!(listed[0].profile, Some(found));
}

#[tokio::test]
async fn list_of_a_project_uses_an_index() {
    let (_database, store, project) = store().await;
    let listed = undeleted(&project)
        .order_by_desc(profile::Column::Id)
        .limit(21);
    let query = listed.build(store.db.get_database_backend());
    let plan = explain(&store.db, query).await;
    assert!(plan.contains("profiles_of_a_project"), "{plan}");
    assert!(!is_sorting(&plan), "{plan}");
}

fn selected(profile: &ProfileId, save_changes: bool) -> BrowserProfileRow {
    BrowserProfileRow {
        id: profile.clone(),
        name: None,
        save_changes,
    }
}

#[tokio::test]
async fn browser_has_an_attached_profile_when_the_attachment_is_completed() {
    let (_database, store, project) = store().await;
    let shop = profile(&store, &project).await;
    let other = profile(&store, &project).await;
    let plain = async || published_browser(&store, NewBrowserRow::sample(&project)).await;
    let (first, second) = (plain().await, plain().await);
    let begin = async |id: &str, browser: &BrowserId, profile: BrowserProfileRow| {
        let begun = store.begin_profile_attachment(id, browser, &profile, Utc::now());
        begun.await
    };
    begin("1", &first, selected(&shop, true)).await.unwrap();
    // The load is not complete, for the same request as for another one.
    for repeated in [selected(&shop, true), selected(&other, false)] {
        let refused = begin("2", &first, repeated).await;
        assert!(matches!(refused, Err(AttachProfileError::Loading)));
    }
    let refused = begin("2", &second, selected(&shop, true)).await;
    assert!(matches!(refused, Err(AttachProfileError::InUse)));
    let deleted = store.delete_profile(&project, &shop, Utc::now()).await;
    assert_eq!(deleted.unwrap(), DeleteProfileOutcome::InUse);
    assert_eq!(store.saved_profile_of(&first).await.unwrap(), None);
    let row = store
        .find_active_browser(&first)
        .await
        .unwrap()
        .unwrap()
        .row;
    assert_eq!(row.profile, None);

    assert!(store.complete_profile_attachment("1").await.unwrap());
    assert!(!store.complete_profile_attachment("1").await.unwrap());
    store.end_profile_operation("1").await.unwrap();
    assert_eq!(
        store.saved_profile_of(&first).await.unwrap(),
        Some(shop.clone())
    );
    let repeated = begin("2", &first, selected(&shop, true)).await;
    assert!(matches!(repeated, Err(AttachProfileError::HasSame)));
    for others in [selected(&shop, false), selected(&other, true)] {
        let refused = begin("2", &first, others).await;
        assert!(matches!(refused, Err(AttachProfileError::HasOther)));
    }
    assert_eq!(store.profile_operations().await.unwrap(), []);
}

#[tokio::test]
async fn ended_attachment_leaves_neither_a_profile_nor_a_lock() {
    let (_database, store, project) = store().await;
    let shop = profile(&store, &project).await;
    let browser = published_browser(&store, NewBrowserRow::sample(&project)).await;
    for save_changes in [true, false] {
        let profile = selected(&shop, save_changes);
        let begun = store.begin_profile_attachment("1", &browser, &profile, Utc::now());
        begun.await.unwrap();
        let operations = store.profile_operations().await.unwrap();
        assert_eq!(operations, [("1".to_owned(), store.process())]);
        store.end_profile_operation("1").await.unwrap();
        assert!(!store.complete_profile_attachment("1").await.unwrap());
        let found = store.find_active_browser(&browser).await.unwrap().unwrap();
        assert_eq!(found.row.profile, None);
    }
    // A browser that ends meanwhile does not get the profile either.
    let profile = selected(&shop, true);
    let begun = store.begin_profile_attachment("1", &browser, &profile, Utc::now());
    begun.await.unwrap();
    let reason = EndReason::Deleted;
    store
        .withdraw_browser(&browser, reason, Utc::now())
        .await
        .unwrap();
    assert!(!store.complete_profile_attachment("1").await.unwrap());
    store.end_profile_operation("1").await.unwrap();
    assert!(matches!(
        begin(&store, &shop, SaveSource::Upload).await,
        BeginSave::Started(_)
    ));
}

#[tokio::test]
async fn row_of_a_browser_and_its_lock_go_together() {
    let (_database, store, project) = store().await;
    let shop = profile(&store, &project).await;
    let rename = async |from: &str, to: &str| {
        let statement = format!("ALTER TABLE {from} RENAME TO {to}");
        store.writer.execute_unprepared(&statement).await.unwrap();
    };
    let creating = store.create_browser(browser(&project, &shop, true), Utc::now());
    let creating = creating.await.unwrap().id;
    rename("profile_write_locks", "hidden").await;
    assert!(store.delete_creating_browser(&creating).await.is_err());
    rename("hidden", "profile_write_locks").await;
    assert!(store.delete_creating_browser(&creating).await.unwrap());

    let active = published_browser(&store, browser(&project, &shop, true)).await;
    rename("profile_write_locks", "hidden").await;
    let (reason, now) = (EndReason::Gone, Utc::now());
    assert!(store.close_browser(&active, reason, now).await.is_err());
    rename("hidden", "profile_write_locks").await;
    assert!(store.find_active_browser(&active).await.unwrap().is_some());
    store.close_browser(&active, reason, now).await.unwrap();
    assert_eq!(store.browsers_with_write_lock().await.unwrap().len(), 0);
}
