//! Tests of API keys.

use chrono::TimeDelta;
use secrecy::ExposeSecret;

use super::*;
use crate::control::store::{KeyOrder, KeyStatusFilter, test_database::TestDatabase};

async fn keys() -> (TestDatabase, ApiKeys) {
    let database = TestDatabase::create();
    let store = database.open().await;
    (database, ApiKeys::new(store, Shutdown::new()))
}

/// Creates a key and returns the identity that it proves.
async fn identity(
    keys: &ApiKeys,
    project: Option<ProjectId>,
    expires_at: Option<DateTime<Utc>>,
) -> Identity {
    let (_, key) = keys.create("caller", project, expires_at).await.unwrap();
    keys.authenticate(key.expose_secret()).await.unwrap()
}

/// Replaces a key at once, by one that expires when the old one would have.
const AT_ONCE: Rotation = Rotation {
    expires_at: None,
    grace_period: TimeDelta::zero(),
};

fn listing() -> KeyListing {
    KeyListing {
        status: KeyStatusFilter::Active,
        name: None,
        query: None,
        public_part: None,
        order: KeyOrder::CreatedAt,
        is_descending: true,
        offset: 0,
        limit: 100,
    }
}

#[tokio::test]
async fn key_is_valid_until_deleted() {
    let (_database, keys) = keys().await;
    let (row, key) = keys.create("ci", None, None).await.unwrap();
    let key = key.expose_secret();
    assert!(key.starts_with("berth_"));
    assert_eq!(FORMAT.mask(&row.public_part), format!("{}_…", &key[..18]));
    for _ in 0..2 {
        assert_eq!(keys.authenticate(key).await.unwrap().key, row.id);
    }
    let caller = identity(&keys, None, None).await;
    keys.delete(&caller, &row.id).await.unwrap();
    assert!(matches!(
        keys.authenticate(key).await,
        Err(KeyError::NotFound)
    ));
    assert!(matches!(
        keys.delete(&caller, &row.id).await,
        Err(KeyError::NotFound)
    ));
}

#[tokio::test]
async fn only_the_complete_key_is_valid() {
    let (_database, keys) = keys().await;
    let (_, key) = keys.create("ci", None, None).await.unwrap();
    let key = key.expose_secret();
    let last = if key.ends_with('0') { "1" } else { "0" };
    for wrong in [
        "",
        "berth_",
        &key[..18],
        &key[..key.len() - 1],
        &format!("{key}0"),
        &format!("{}{last}", &key[..key.len() - 1]),
        &key.to_uppercase(),
    ] {
        let result = keys.authenticate(wrong).await;
        assert!(matches!(result, Err(KeyError::NotFound)), "{wrong}");
    }
}

#[tokio::test]
async fn rotated_key_is_valid_during_its_grace_period_only() {
    let (_database, keys) = keys().await;
    let caller = identity(&keys, None, None).await;
    let (old, old_key) = keys.create("ci", None, None).await.unwrap();
    let week = Rotation {
        expires_at: None,
        grace_period: TimeDelta::days(7),
    };
    let before = Utc::now();
    let (new, new_key) = keys.rotate(&caller, &old.id, week).await.unwrap();
    assert_ne!(new.row.id, old.id);
    assert_eq!((new.row.name.as_str(), new.row.expires_at), ("ci", None));
    assert_eq!(new.row.created_by, Some(KeyCreator::from(&caller)));
    for (key, id) in [(&old_key, &old.id), (&new_key, &new.row.id)] {
        let found = keys.authenticate(key.expose_secret()).await.unwrap();
        assert_eq!(found.key, *id);
    }
    let end = keys
        .get(None, &old.id)
        .await
        .unwrap()
        .row
        .expires_at
        .unwrap();
    let expected = before + TimeDelta::days(7);
    assert!((end - expected).abs() < TimeDelta::minutes(1), "{end}");

    // A second rotation shortens the period, and a third one does not extend it.
    keys.rotate(&caller, &new.row.id, AT_ONCE).await.unwrap();
    keys.rotate(&caller, &old.id, week).await.unwrap();
    let unchanged = keys.get(None, &old.id).await.unwrap().row.expires_at;
    assert_eq!(unchanged, Some(end));
    for result in [
        keys.authenticate(new_key.expose_secret()).await,
        keys.identify(&new.row.public_part).await,
    ] {
        assert!(matches!(result, Err(KeyError::Expired)));
    }
}

#[tokio::test]
async fn expired_key_is_rotated_with_a_new_expiry_only() {
    let (_database, keys) = keys().await;
    let caller = identity(&keys, None, None).await;
    let past = Utc::now() - TimeDelta::milliseconds(1);
    let (old, _) = keys.create("ci", None, Some(past)).await.unwrap();
    let refused = keys.rotate(&caller, &old.id, AT_ONCE).await;
    assert!(matches!(refused, Err(KeyError::RotationExpired)));
    let tomorrow = Rotation {
        expires_at: Some(Utc::now() + TimeDelta::days(1)),
        ..AT_ONCE
    };
    let (_, key) = keys.rotate(&caller, &old.id, tomorrow).await.unwrap();
    keys.authenticate(key.expose_secret()).await.unwrap();
}

#[tokio::test]
async fn identity_read_before_a_revocation_is_not_cached() {
    let (_database, keys) = keys().await;
    let caller = identity(&keys, None, None).await;
    for rotated in [true, false] {
        let (row, key) = keys.create("ci", None, None).await.unwrap();
        let key = key.expose_secret();
        // A verification whose key is revoked between reading the row and caching it.
        let generation = keys.cache.generation();
        let read = keys.get(None, &row.id).await.unwrap().row;
        if rotated {
            keys.rotate(&caller, &row.id, AT_ONCE).await.unwrap();
        } else {
            keys.delete(&caller, &row.id).await.unwrap();
        }
        keys.insert(read.into(), generation);
        for found in [
            keys.authenticate(key).await,
            keys.identify(&row.public_part).await,
        ] {
            assert!(matches!(found, Err(KeyError::NotFound | KeyError::Expired)));
        }
    }
}

#[tokio::test]
async fn expired_key_is_rejected_even_if_cached() {
    let (_database, keys) = keys().await;
    let past = Utc::now() - TimeDelta::milliseconds(1);
    let (row, key) = keys.create("old", None, Some(past)).await.unwrap();
    for _ in 0..2 {
        for result in [
            keys.authenticate(key.expose_secret()).await,
            keys.identify(&row.public_part).await,
        ] {
            assert!(matches!(result, Err(KeyError::Expired)));
        }
    }
}

#[tokio::test]
async fn created_and_rotated_keys_do_not_outlive_the_key_of_the_request() {
    let (_database, keys) = keys().await;
    let limit = DateTime::from_timestamp_millis(Utc::now().timestamp_millis() + 60_000);
    let later = limit.map(|limit| limit + TimeDelta::milliseconds(1));
    let caller = identity(&keys, None, limit).await;
    let forever = identity(&keys, None, None).await;

    let create = async |caller: &Identity, expires_at| {
        let created = keys.create_for(caller, "k", None, expires_at).await;
        created.map(|(record, _)| record.row)
    };
    let inherited = create(&caller, None).await.unwrap();
    let own = create(&caller, limit).await.unwrap();
    assert_eq!([inherited.expires_at, own.expires_at], [limit; 2]);
    let longer = create(&caller, later).await;
    assert!(matches!(longer, Err(KeyError::OutlivesCaller(at)) if Some(at) == limit));
    let unlimited = create(&forever, None).await.unwrap();
    assert_eq!(unlimited.expires_at, None);
    let long = create(&forever, later).await.unwrap();

    let until_later = Rotation {
        expires_at: later,
        ..AT_ONCE
    };
    for (key, rotation) in [
        (&long.id, AT_ONCE),
        (&unlimited.id, AT_ONCE),
        (&forever.key, AT_ONCE),
        (&own.id, until_later),
    ] {
        let rotated = keys.rotate(&caller, key, rotation).await;
        assert!(matches!(rotated, Err(KeyError::OutlivesCaller(_))));
    }
    // The rejected rotations have changed nothing.
    keys.identify(&forever.public_part).await.unwrap();
    keys.identify(&own.public_part).await.unwrap();
    for key in [&own.id, &caller.key] {
        let (rotated, _) = keys.rotate(&caller, key, AT_ONCE).await.unwrap();
        assert_eq!(rotated.row.expires_at, limit);
    }
}

#[tokio::test]
async fn bound_key_needs_an_existing_project_and_is_visible_only_there() {
    let (_database, keys) = keys().await;
    let unknown = keys.create("x", Some(ProjectId::generate()), None).await;
    assert!(matches!(unknown, Err(KeyError::UnknownProject)));
    let here = keys
        .store
        .create_project("here", Utc::now())
        .await
        .unwrap()
        .id;
    let there = keys
        .store
        .create_project("there", Utc::now())
        .await
        .unwrap()
        .id;
    let (row, _) = keys.create("x", Some(here.clone()), None).await.unwrap();
    let found = keys.get(Some(&here), &row.id).await.unwrap();
    assert_eq!(
        (&found.row, found.project_name.as_deref()),
        (&row, Some("here"))
    );
    assert!(matches!(
        keys.get(Some(&there), &row.id).await,
        Err(KeyError::NotFound)
    ));
    let elsewhere = identity(&keys, Some(there.clone()), None).await;
    assert!(matches!(
        keys.rotate(&elsewhere, &row.id, AT_ONCE).await,
        Err(KeyError::NotFound)
    ));
    let (own, _) = keys.create_for(&elsewhere, "y", None, None).await.unwrap();
    assert_eq!(own.row.project_id.as_ref(), Some(&there));
    let foreign = keys.create_for(&elsewhere, "z", Some(here.clone()), None);
    assert!(matches!(foreign.await, Err(KeyError::ForeignProject)));
    assert!(matches!(
        keys.delete(&elsewhere, &row.id).await,
        Err(KeyError::NotFound)
    ));
    let list = async |scope| keys.list(scope, listing()).await.unwrap();
    assert_eq!(list(Some(&here)).await, [found]);
    assert_eq!(list(Some(&there)).await.len(), 2);
    assert_eq!(list(None).await.len(), 3);
}

#[tokio::test]
async fn key_of_a_deleted_project_counts_as_deleted() {
    let (_database, keys) = keys().await;
    let now = Utc::now();
    let store = &keys.store;
    store.default_project("default", now).await.unwrap();
    let project = store.create_project("p", now).await.unwrap().id;
    let (row, _) = keys.create("k", Some(project.clone()), None).await.unwrap();
    let (unbound, _) = keys.create("u", None, None).await.unwrap();
    store.delete_project(&project, now).await.unwrap();
    let found = keys.get(None, &row.id).await;
    assert!(matches!(found, Err(KeyError::NotFound)));
    let list = async |status| {
        let listing = KeyListing {
            status,
            ..listing()
        };
        let listed = keys.list(None, listing).await.unwrap();
        let listed = listed.into_iter();
        listed.map(|record| record.row).collect::<Vec<ApiKeyRow>>()
    };
    assert_eq!(list(KeyStatusFilter::Active).await, [unbound]);
    let deleted = list(KeyStatusFilter::Deleted).await;
    assert_eq!((deleted.len(), &deleted[0].id), (1, &row.id));
    assert!(deleted[0].deleted_at.is_some());
    assert_eq!(list(KeyStatusFilter::All).await.len(), 2);
}

#[tokio::test]
async fn records_of_deleted_keys_are_purged() {
    let (_database, keys) = keys().await;
    let store = &keys.store;
    let caller = identity(&keys, None, None).await;
    let (row, _) = keys.create("k", None, None).await.unwrap();
    keys.delete(&caller, &row.id).await.unwrap();
    let before = Utc::now() - TimeDelta::minutes(1);
    assert_eq!(store.purge_api_keys(before).await.unwrap(), 0);
    let after = Utc::now() + TimeDelta::minutes(1);
    assert_eq!(store.purge_api_keys(after).await.unwrap(), 1);
    let all = KeyListing {
        status: KeyStatusFilter::All,
        ..listing()
    };
    assert_eq!(keys.list(None, all).await.unwrap().len(), 1);
}

#[tokio::test]
async fn key_that_is_no_longer_valid_changes_nothing() {
    let (_database, keys) = keys().await;
    let admin = identity(&keys, None, None).await;
    let past = Some(Utc::now() - TimeDelta::milliseconds(1));
    let deleted = identity(&keys, None, None).await;
    keys.delete(&admin, &deleted.key).await.unwrap();
    let rotated = identity(&keys, None, None).await;
    keys.rotate(&admin, &rotated.key, AT_ONCE).await.unwrap();
    let (row, _) = keys.create("expired", None, past).await.unwrap();
    let expired = KnownKey::from(row).identity;
    let (target, _) = keys.create("target", None, None).await.unwrap();
    let before = keys.list(None, listing()).await.unwrap();
    for caller in [deleted, rotated, expired] {
        let created = keys.create_for(&caller, "x", None, None).await.map(drop);
        let renamed = keys.rename(&caller, &target.id, "x").await.map(drop);
        let deleted = keys.delete(&caller, &target.id).await;
        for result in [created, renamed, deleted] {
            assert!(matches!(result, Err(KeyError::CallerInvalid)), "{result:?}");
        }
        let replaced = keys.rotate(&caller, &target.id, AT_ONCE).await.map(drop);
        // The target does not expire, unlike one of the callers.
        assert!(matches!(
            replaced,
            Err(KeyError::CallerInvalid | KeyError::OutlivesCaller(_))
        ));
    }
    assert_eq!(keys.list(None, listing()).await.unwrap(), before);
}
