//! Tests of API keys.

use chrono::TimeDelta;

use super::*;

async fn keys() -> (tempfile::TempDir, ApiKeys) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_sqlite(&directory.path().join("k.db"))
        .await
        .unwrap();
    (directory, ApiKeys::new(store, Shutdown::new()))
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

#[tokio::test]
async fn key_is_valid_until_deleted() {
    let (_directory, keys) = keys().await;
    let (row, key) = keys.create("ci", None, None).await.unwrap();
    let key = key.expose_secret();
    assert!(key.starts_with("berth_"));
    assert_eq!(mask(&row.public_part), format!("{}_…", &key[..18]));
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
    let (_directory, keys) = keys().await;
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
async fn rotated_key_is_valid_with_the_new_secret_only() {
    let (_directory, keys) = keys().await;
    let (row, old) = keys.create("ci", None, None).await.unwrap();
    keys.authenticate(old.expose_secret()).await.unwrap();
    keys.identify(&row.public_part).await.unwrap();
    let caller = identity(&keys, None, None).await;
    let (rotated, new) = keys.rotate(&caller, &row.id).await.unwrap();
    assert_eq!(rotated.id, row.id);
    assert!(keys.authenticate(old.expose_secret()).await.is_err());
    assert!(keys.identify(&row.public_part).await.is_err());
    keys.identify(&rotated.public_part).await.unwrap();
    assert_eq!(
        keys.authenticate(new.expose_secret()).await.unwrap().key,
        row.id
    );
}

#[tokio::test]
async fn identity_read_before_a_revocation_is_not_cached() {
    let (_directory, keys) = keys().await;
    let caller = identity(&keys, None, None).await;
    for rotated in [true, false] {
        let (row, key) = keys.create("ci", None, None).await.unwrap();
        let key = key.expose_secret();
        // A verification whose key is revoked between reading the row and caching it.
        let generation = keys.cache.generation();
        let read = keys.get(None, &row.id).await.unwrap();
        if rotated {
            keys.rotate(&caller, &row.id).await.unwrap();
        } else {
            keys.delete(&caller, &row.id).await.unwrap();
        }
        keys.insert(read.into(), generation);
        for found in [
            keys.authenticate(key).await,
            keys.identify(&row.public_part).await,
        ] {
            assert!(matches!(found, Err(KeyError::NotFound)));
        }
    }
}

#[tokio::test]
async fn expired_key_is_rejected_even_if_cached() {
    let (_directory, keys) = keys().await;
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
    let (_directory, keys) = keys().await;
    let limit = DateTime::from_timestamp_millis(Utc::now().timestamp_millis() + 60_000);
    let later = limit.map(|limit| limit + TimeDelta::milliseconds(1));
    let caller = identity(&keys, None, limit).await;
    let forever = identity(&keys, None, None).await;

    let (inherited, _) = keys.create_for(&caller, "a", None, None).await.unwrap();
    let (own, _) = keys.create_for(&caller, "b", None, limit).await.unwrap();
    assert_eq!([inherited.expires_at, own.expires_at], [limit; 2]);
    let longer = keys.create_for(&caller, "c", None, later).await;
    assert!(matches!(longer, Err(KeyError::OutlivesCaller(at)) if Some(at) == limit));
    let (unlimited, _) = keys.create_for(&forever, "d", None, None).await.unwrap();
    assert_eq!(unlimited.expires_at, None);
    let (long, _) = keys.create_for(&forever, "e", None, later).await.unwrap();

    for key in [&long.id, &unlimited.id, &forever.key] {
        let rotated = keys.rotate(&caller, key).await;
        assert!(matches!(rotated, Err(KeyError::OutlivesCaller(_))));
    }
    // The rejected rotations have changed nothing.
    keys.identify(&forever.public_part).await.unwrap();
    for key in [&own.id, &caller.key] {
        let (rotated, _) = keys.rotate(&caller, key).await.unwrap();
        assert_eq!(rotated.expires_at, limit);
    }
}

#[tokio::test]
async fn bound_key_needs_an_existing_project_and_is_visible_only_there() {
    let (_directory, keys) = keys().await;
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
    assert_eq!(keys.get(Some(&here), &row.id).await.unwrap(), row);
    assert!(matches!(
        keys.get(Some(&there), &row.id).await,
        Err(KeyError::NotFound)
    ));
    let elsewhere = identity(&keys, Some(there.clone()), None).await;
    assert!(matches!(
        keys.rotate(&elsewhere, &row.id).await,
        Err(KeyError::NotFound)
    ));
    let (own, _) = keys.create_for(&elsewhere, "y", None, None).await.unwrap();
    assert_eq!(own.project_id.as_ref(), Some(&there));
    let foreign = keys.create_for(&elsewhere, "z", Some(here.clone()), None);
    assert!(matches!(foreign.await, Err(KeyError::ForeignProject)));
    assert!(matches!(
        keys.delete(&elsewhere, &row.id).await,
        Err(KeyError::NotFound)
    ));
    assert_eq!(keys.list(Some(&here), 0, 10).await.unwrap(), [row]);
    assert_eq!(keys.list(Some(&there), 0, 10).await.unwrap().len(), 2);
    assert_eq!(keys.list(None, 0, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn key_that_is_no_longer_valid_changes_nothing() {
    let (_directory, keys) = keys().await;
    let admin = identity(&keys, None, None).await;
    let past = Some(Utc::now() - TimeDelta::milliseconds(1));
    let deleted = identity(&keys, None, None).await;
    keys.delete(&admin, &deleted.key).await.unwrap();
    let rotated = identity(&keys, None, None).await;
    keys.rotate(&admin, &rotated.key).await.unwrap();
    let (row, _) = keys.create("expired", None, past).await.unwrap();
    let expired = KnownKey::from(row).identity;
    let (target, _) = keys.create("target", None, past).await.unwrap();
    let before = keys.list(None, 0, 100).await.unwrap();
    for caller in [deleted, rotated, expired] {
        let created = keys.create_for(&caller, "x", None, None).await.map(drop);
        let replaced = keys.rotate(&caller, &target.id).await.map(drop);
        let deleted = keys.delete(&caller, &target.id).await;
        for result in [created, replaced, deleted] {
            assert!(matches!(result, Err(KeyError::CallerInvalid)), "{result:?}");
        }
    }
    assert_eq!(keys.list(None, 0, 100).await.unwrap(), before);
}
