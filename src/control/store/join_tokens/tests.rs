//! Tests of the table of join tokens.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use futures::future::join_all;

use super::*;
use crate::{
    api::ids::KeyId,
    control::store::{ApiKeyRow, NewApiKey, test_database::TestDatabase},
};

struct Fixture {
    _database: TestDatabase,
    store: Store,
    key: ApiKeyRow,
}

impl Fixture {
    async fn create() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let key = NewApiKey {
            name: "k".to_owned(),
            public_part: "0".to_owned(),
            digest: [0; 32],
            project_id: None,
            expires_at: None,
            created_by: None,
        };
        let key = store.create_api_key(key, Utc::now()).await.unwrap();
        Fixture {
            _database: database,
            store,
            key,
        }
    }

    fn caller(&self) -> CallerKey {
        CallerKey {
            id: self.key.id.clone(),
            public_part: self.key.public_part.clone(),
        }
    }

    async fn token(&self, max_uses: u32, expires_at: Option<DateTime<Utc>>) -> JoinTokenRow {
        let id = JoinTokenId::generate();
        let new = NewJoinToken {
            public_part: id.to_string(),
            digest: [7; 32],
            max_uses,
            labels: BTreeMap::from([("zone".to_owned(), "ä\"".to_owned())]),
            created_by: KeyCreator {
                id: self.key.id.clone(),
                name: self.key.name.clone(),
            },
            expires_at,
        };
        let caller = self.caller();
        let created = self.store.create_join_token_for(&caller, new, Utc::now());
        match created.await.unwrap() {
            Authorized::Done(row) => row,
            Authorized::CallerInvalid => panic!("the key is valid"),
        }
    }

    async fn take(&self, token: &JoinTokenRow) -> bool {
        let taken = take_join_token_use(&self.store.writer, &token.id, Utc::now());
        taken.await.unwrap()
    }

    async fn find(&self, token: &JoinTokenRow) -> Option<JoinTokenRow> {
        let found = self
            .store
            .find_join_token_by_public_part(&token.public_part);
        found.await.unwrap()
    }
}

#[tokio::test]
async fn concurrent_uses_never_exceed_the_limit() {
    let fixture = Fixture::create().await;
    let token = fixture.token(5, None).await;
    let other = fixture.token(1, None).await;
    let taken = join_all((0..20).map(|_| fixture.take(&token))).await;
    assert_eq!(taken.into_iter().filter(|taken| *taken).count(), 5);
    let found = fixture.find(&token).await.unwrap();
    assert_eq!((found.uses, found.max_uses), (5, 5));
    assert!(found.last_used_at.is_some());
    let expected = JoinTokenRow {
        uses: 5,
        last_used_at: found.last_used_at,
        ..token
    };
    assert_eq!(found, expected);
    assert_eq!(fixture.find(&other).await.unwrap().uses, 0);
}

#[tokio::test]
async fn expired_or_deleted_token_has_no_use() {
    let fixture = Fixture::create().await;
    let soon = Utc::now() + TimeDelta::hours(1);
    let token = fixture.token(9, Some(soon)).await;
    assert!(fixture.take(&token).await);
    let store = &fixture.store;
    for (now, expected) in [
        (soon - TimeDelta::milliseconds(1), true),
        (soon, false),
        (soon + TimeDelta::days(1), false),
    ] {
        let taken = take_join_token_use(&store.writer, &token.id, now)
            .await
            .unwrap();
        assert_eq!(taken, expected, "{now}");
    }
    let caller = fixture.caller();
    for expected in [true, false] {
        let deleted = store.delete_join_token_for(&caller, &token.id, Utc::now());
        let deleted = deleted.await.unwrap();
        assert!(matches!(deleted, Authorized::Done(found) if found == expected));
    }
    assert!(!fixture.take(&token).await);
    assert_eq!(fixture.find(&token).await, None);
}

#[tokio::test]
async fn caller_without_a_valid_key_changes_nothing() {
    let fixture = Fixture::create().await;
    let token = fixture.token(1, None).await;
    let unknown = CallerKey {
        id: KeyId::generate(),
        ..fixture.caller()
    };
    let deleted = fixture
        .store
        .delete_join_token_for(&unknown, &token.id, Utc::now());
    assert!(matches!(deleted.await.unwrap(), Authorized::CallerInvalid));
    assert!(fixture.find(&token).await.is_some());
}

#[tokio::test]
async fn purge_deletes_used_up_and_expired_tokens_only() {
    let fixture = Fixture::create().await;
    let now = Utc::now();
    let used_up = fixture.token(1, None).await;
    let half_used = fixture.token(2, None).await;
    let expired = fixture.token(1, Some(now + TimeDelta::hours(1))).await;
    let valid = fixture.token(1, Some(now + TimeDelta::days(9))).await;
    assert!(fixture.take(&used_up).await && fixture.take(&half_used).await);
    let purged = fixture.store.purge_join_tokens(now).await.unwrap();
    assert_eq!(purged, 0);
    let later = now + TimeDelta::days(1);
    let purged = fixture.store.purge_join_tokens(later).await.unwrap();
    assert_eq!(purged, 2);
    let listed = fixture.store.list_join_tokens(0, 100).await.unwrap();
    let listed: BTreeSet<JoinTokenId> = listed.into_iter().map(|row| row.id).collect();
    assert_eq!(listed, BTreeSet::from([half_used.id, valid.id]));
    assert!(fixture.find(&expired).await.is_none());
}
