//! Tests of sealing, of the keys, and of rotations that are interrupted.

use secrecy::{ExposeSecret, SecretString};

use super::{cipher, key::OperatorKey, *};
use crate::{
    api::ids::ProjectId,
    control::store::{DataKeyRow, RetireKeyOutcome, test_database::TestDatabase},
};

fn ring(digits: &[char]) -> KeyRing {
    let keys = digits.iter().map(|digit| digit.to_string().repeat(64));
    let text = keys.collect::<Vec<_>>().join("\n");
    KeyRing::parse(&SecretString::from(text)).unwrap()
}

fn key_id(digit: char) -> String {
    let key = OperatorKey::parse(&digit.to_string().repeat(64)).unwrap();
    key.unwrap().id().to_owned()
}

const PLACE: SealedPlace<'static> = SealedPlace {
    record: "record",
    purpose: "example.com",
    field: "value:password",
    revision: 1,
};

/// A database whose scopes each have a sealed value.
struct Fixture {
    database: TestDatabase,
    store: Store,
    scopes: Vec<SecretScope>,
    sealed: Vec<Sealed>,
}

impl Fixture {
    async fn new(ring: &KeyRing) -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let secrets = Secrets::open(store.clone(), ring.clone()).await.unwrap();
        let projects = (0..4).map(|_| SecretScope::Project(ProjectId::generate()));
        let scopes: Vec<_> = projects.chain([SecretScope::Organization]).collect();
        let mut sealed = Vec::new();
        for scope in &scopes {
            let keys = secrets.keys_of(scope).await.unwrap();
            sealed.push(keys.seal(&PLACE, scope.as_str().as_bytes()).unwrap());
        }
        Fixture {
            database,
            store,
            scopes,
            sealed,
        }
    }

    async fn assert_readable(&self, ring: &KeyRing) {
        let secrets = Secrets::open(self.store.clone(), ring.clone()).await;
        let secrets = secrets.unwrap_or_else(|error| panic!("{error}"));
        for (scope, sealed) in self.scopes.iter().zip(&self.sealed) {
            let keys = secrets.keys_of(scope).await.unwrap();
            let opened = keys.open(&PLACE, sealed).unwrap();
            assert_eq!(opened.expose_secret(), scope.as_str().as_bytes());
        }
    }
}

#[tokio::test]
async fn value_opens_only_at_its_place() {
    let ring = ring(&['1']);
    let fixture = Fixture::new(&ring).await;
    let secrets = Secrets::open(fixture.store.clone(), ring).await.unwrap();
    let mut places = Vec::new();
    for record in ["a", "ab"] {
        for purpose in ["b", "bc.example"] {
            for field in ["c", "value:c"] {
                for revision in [1, 11] {
                    places.push(SealedPlace {
                        record,
                        purpose,
                        field,
                        revision,
                    });
                }
            }
        }
    }
    let mut sealed = Vec::new();
    for scope in &fixture.scopes[..2] {
        let keys = secrets.keys_of(scope).await.unwrap();
        for place in &places {
            sealed.push((scope, *place, keys.seal(place, b"a secret").unwrap()));
        }
    }
    for (at_scope, place, _) in &sealed {
        let keys = secrets.keys_of(at_scope).await.unwrap();
        for (of_scope, of_place, value) in &sealed {
            let is_own = at_scope == of_scope && format!("{place:?}") == format!("{of_place:?}");
            match keys.open(place, value) {
                Ok(opened) => assert!(is_own && opened.expose_secret() == b"a secret"),
                Err(error) => assert!(!is_own && matches!(error, SecretError::Damaged)),
            }
        }
    }
}

#[tokio::test]
async fn flipped_bit_anywhere_is_rejected() {
    let ring = ring(&['1']);
    let fixture = Fixture::new(&ring).await;
    let secrets = Secrets::open(fixture.store.clone(), ring.clone())
        .await
        .unwrap();
    let keys = secrets.keys_of(&fixture.scopes[0]).await.unwrap();
    let sealed = &fixture.sealed[0];
    for bit in 0..sealed.bytes.len() * 8 {
        let mut flipped = sealed.clone();
        flipped.bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(keys.open(&PLACE, &flipped).is_err(), "bit {bit}");
    }
    for length in 0..sealed.bytes.len() {
        let mut cut = sealed.clone();
        cut.bytes.truncate(length);
        assert!(keys.open(&PLACE, &cut).is_err(), "{length} bytes");
    }
    let row = fixture
        .store
        .data_keys(fixture.scopes[0].as_str())
        .await
        .unwrap()
        .remove(0);
    for bit in 0..row.wrapped.len() * 8 {
        let mut flipped = row.clone();
        flipped.wrapped[bit / 8] ^= 1 << (bit % 8);
        assert!(data_keys::unwrap(&ring, &flipped).is_err(), "bit {bit}");
    }
}

#[tokio::test]
async fn wrapped_key_of_another_scope_is_rejected() {
    let ring = ring(&['1']);
    let fixture = Fixture::new(&ring).await;
    let mut rows: Vec<DataKeyRow> = Vec::new();
    for scope in &fixture.scopes {
        rows.extend(fixture.store.data_keys(scope.as_str()).await.unwrap());
    }
    for row in &rows {
        for other in &rows {
            let swapped = DataKeyRow {
                wrapped: other.wrapped.clone(),
                ..row.clone()
            };
            let is_own = row.scope == other.scope;
            assert_eq!(data_keys::unwrap(&ring, &swapped).is_ok(), is_own);
        }
        let later = DataKeyRow {
            version: row.version + 1,
            ..row.clone()
        };
        assert!(data_keys::unwrap(&ring, &later).is_err());
    }
}

#[tokio::test]
async fn missing_key_is_named() {
    let fixture = Fixture::new(&ring(&['1'])).await;
    let opened = Secrets::open(fixture.store.clone(), ring(&['2'])).await;
    let Err(SecretError::UnknownKey(UnknownKey(missing))) = opened else {
        panic!("opened without the key");
    };
    assert_eq!(missing, key_id('1'));
    fixture.assert_readable(&ring(&['2', '1'])).await;
}

#[tokio::test]
async fn rotation_that_ends_anywhere_leaves_all_readable() {
    let (old, both, new) = (ring(&['1']), ring(&['2', '1']), ring(&['2']));
    for steps in 0..=5 {
        let fixture = Fixture::new(&old).await;
        let store = &fixture.store;
        let report = rotation::rewrap_all(store, &both, steps).await.unwrap();
        assert_eq!(report.rewrapped.len(), steps);
        assert_eq!(report.primary, key_id('2'));
        fixture.assert_readable(&both).await;
        if steps < 5 {
            let opened = Secrets::open(store.clone(), new.clone()).await;
            assert!(matches!(opened, Err(SecretError::UnknownKey(_))));
        }
        let report = rotation::rewrap_all(store, &both, usize::MAX)
            .await
            .unwrap();
        assert_eq!(report.rewrapped.len(), 5 - steps);
        fixture.assert_readable(&new).await;
        drop(fixture.database);
    }
}

#[tokio::test]
async fn key_in_use_is_not_retired_and_retired_key_is_not_used() {
    let (old, both) = (ring(&['1']), ring(&['2', '1']));
    let fixture = Fixture::new(&old).await;
    let store = &fixture.store;
    let retired = store.retire_key(&key_id('1'), Utc::now()).await.unwrap();
    assert_eq!(retired, RetireKeyOutcome::InUse(5));
    rotation::rewrap_all(store, &both, usize::MAX)
        .await
        .unwrap();
    // A process that still has the old key first.
    let outdated = Secrets::open(store.clone(), ring(&['1', '2']))
        .await
        .unwrap();
    let retired = store.retire_key(&key_id('1'), Utc::now()).await.unwrap();
    assert_eq!(retired, RetireKeyOutcome::Retired);
    let scope = SecretScope::Project(ProjectId::generate());
    let refused = outdated.keys_of(&scope).await;
    assert!(matches!(refused, Err(SecretError::RetiredKey(key)) if key == key_id('1')));
    assert_eq!(store.data_keys(scope.as_str()).await.unwrap(), []);
    let opened = Secrets::open(store.clone(), ring(&['1', '2'])).await;
    assert!(matches!(opened, Err(SecretError::RetiredKey(_))));
    fixture.assert_readable(&both).await;
}

#[tokio::test]
async fn concurrent_first_uses_of_a_scope_agree_on_its_key() {
    let ring = ring(&['1']);
    let database = TestDatabase::create();
    let secrets = Secrets::open(database.open().await, ring).await.unwrap();
    let scope = SecretScope::Project(ProjectId::generate());
    let keys = (0..8).map(|_| secrets.keys_of(&scope));
    let keys: Vec<_> = futures::future::join_all(keys).await;
    let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
    let sealed = keys[0].seal(&PLACE, b"a secret").unwrap();
    for keys in &keys {
        let opened = keys.open(&PLACE, &sealed).unwrap();
        assert_eq!(opened.expose_secret(), b"a secret");
    }
}

#[test]
fn list_of_keys_is_parsed() {
    let text = format!(
        "# current, of 2026\n{}\n\n {} \n",
        "A1".repeat(32),
        "2".repeat(64)
    );
    let parsed = KeyRing::parse(&SecretString::from(text)).unwrap();
    let lower = KeyRing::parse(&SecretString::from("a1".repeat(32))).unwrap();
    assert_eq!(parsed.primary_id(), lower.primary_id());
    assert_eq!(parsed.ids().count(), 2);
    let variable = format!("{},{}", "1".repeat(64), "2".repeat(64));
    let variable = KeyRing::parse(&SecretString::from(variable)).unwrap();
    assert_eq!(
        variable.ids().collect::<Vec<_>>(),
        [key_id('1'), key_id('2')]
    );

    let key = "1".repeat(64);
    let many: Vec<_> = (0..17).map(|number| format!("{number:064}")).collect();
    for (text, error) in [
        (String::new(), "there is no key"),
        ("# nothing\n".to_owned(), "there is no key"),
        (format!("{key}\n{key}"), "line 2 repeats a key"),
        (format!("{key}0"), "line 1 is not a key"),
        (format!("\n{}", "g".repeat(64)), "line 2 is not a key"),
        (many.join("\n"), "more than 16 keys"),
    ] {
        let Err(found) = KeyRing::parse(&SecretString::from(text)) else {
            panic!("accepted: {error}");
        };
        let found = found.to_string();
        assert!(found.contains(error) && !found.contains("1111"), "{found}");
    }
}

#[test]
fn nonces_differ() {
    let (key, place) = ([7; 32], b"place");
    let seal = || cipher::seal(&key, place, b"").unwrap();
    assert_ne!(seal(), seal());
}
