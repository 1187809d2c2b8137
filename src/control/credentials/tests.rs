//! Tests of the credential service without HTTP.

use std::{
    collections::HashSet,
    fmt::{Debug, Display},
};

use deserr::errors::JsonError;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Value, json};
use static_assertions::assert_not_impl_any;

use super::{
    fields::TOTP_FIELD,
    fill::Reservation,
    material::{CodeSource, ComputedCode, FillMaterial, best_credential},
    totp::OneTimeCode,
    *,
};
use crate::control::{
    secrets::key_ring::KeyRing,
    store::{SealedField, test_database::TestDatabase},
};

// No panic message or log can have their secrets.
assert_not_impl_any!(CodeSource: Debug, Display, Serialize);
assert_not_impl_any!(FillMaterial: Debug, Display, Serialize);
assert_not_impl_any!(OneTimeCode: Debug, Display, Serialize);
assert_not_impl_any!(Reservation: Debug, Display, Serialize);

struct Fixture {
    credentials: StoredCredentials,
    projects: Vec<ProjectId>,
    _database: TestDatabase,
}

fn parse<T: deserr::Deserr<JsonError>>(value: Value) -> T {
    deserr::deserialize::<T, _, JsonError>(value)
        .map_err(|error| error.to_string())
        .unwrap()
}

impl Fixture {
    async fn new() -> Fixture {
        let database = TestDatabase::create();
        let store = database.open().await;
        let ring = KeyRing::parse(&SecretString::from("1".repeat(64))).unwrap();
        let secrets = Secrets::open(store.clone(), ring).await.unwrap();
        let mut projects = Vec::new();
        for name in ["a", "b"] {
            projects.push(store.create_project(name, Utc::now()).await.unwrap().id);
        }
        Fixture {
            credentials: StoredCredentials::new(store, secrets),
            projects,
            _database: database,
        }
    }

    async fn create(&self, project: usize, name: &str, domain: &str) -> CredentialRow {
        let request = parse(json!({
            "name": name,
            "domain": domain,
            "values": {"username": format!("{name}@{domain}"), "password": "secret"},
            "totp_secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
        }));
        let project = &self.projects[project];
        let created = self.credentials.create(project, request).await;
        created.map_err(|error| error.to_string()).unwrap().row
    }

    async fn update(&self, name: &str, changes: Value) -> CredentialRow {
        let credentials = &self.credentials;
        let updated = credentials.update(&self.projects[0], name, parse(changes));
        updated
            .await
            .map_err(|error| error.to_string())
            .unwrap()
            .row
    }
}

/// Replaces the sealed content of a field by that of another one.
async fn overwrite(store: &Store, row: &CredentialRow, field: &SealedField, with: &SealedField) {
    let found = store.find_credential(&row.project_id, &row.id).await;
    let change = CredentialChange {
        written_fields: vec![SealedField {
            field: field.field.clone(),
            ..with.clone()
        }],
        ..CredentialChange::default()
    };
    let current = found.unwrap().unwrap();
    let updated = store.update_credential(&current, change, Utc::now());
    assert!(updated.await.unwrap());
}

#[tokio::test]
async fn field_of_any_other_row_is_rejected() {
    let fixture = Fixture::new().await;
    let store = &fixture.credentials.store;
    let rows = [
        fixture.create(0, "one", "example.com").await,
        fixture.create(0, "two", "example.com").await,
        fixture.create(0, "three", "other.example").await,
        fixture.create(1, "one", "example.com").await,
    ];
    let mut fields = Vec::new();
    for row in &rows {
        for field in store.sealed_fields(&row.id).await.unwrap() {
            fields.push((row, field));
        }
    }
    assert_eq!(fields.len(), 12);
    for (row, field) in &fields {
        for (other_row, other) in &fields {
            if (&row.id, &field.field) == (&other_row.id, &other.field) {
                continue;
            }
            overwrite(store, row, field, other).await;
            let opened = fixture.credentials.open(row, |name| name == field.field);
            let error = opened.await.err();
            assert!(
                matches!(error, Some(CredentialError::Secret(SecretError::Damaged))),
                "{} of {} at {} of {}",
                other.field,
                other_row.name,
                field.field,
                row.name,
            );
        }
        overwrite(store, row, field, field).await;
        let opened = fixture.credentials.open(row, |name| name == field.field);
        assert_eq!(
            opened
                .await
                .map_err(|error| error.to_string())
                .unwrap()
                .len(),
            1
        );
    }
}

#[tokio::test]
async fn earlier_revision_of_a_field_and_another_domain_are_rejected() {
    let fixture = Fixture::new().await;
    let row = fixture.create(0, "one", "example.com").await;
    let store = &fixture.credentials.store;
    let password = |fields: Vec<SealedField>| {
        let mut fields = fields.into_iter();
        fields
            .find(|field| field.field == "value:password")
            .unwrap()
    };
    let earlier = password(store.sealed_fields(&row.id).await.unwrap());
    let row = fixture
        .update("one", json!({"values": {"password": "another"}}))
        .await;
    let later = password(store.sealed_fields(&row.id).await.unwrap());
    assert!(later.revision > earlier.revision);
    let mixed = SealedField {
        revision: later.revision,
        ..earlier.clone()
    };
    overwrite(store, &row, &earlier, &mixed).await;
    assert!(fixture.credentials.values(&row).await.is_err());
    overwrite(store, &row, &later, &later).await;
    assert!(fixture.credentials.values(&row).await.is_ok());
    let elsewhere = CredentialRow {
        domain: "attacker.example".to_owned(),
        ..row
    };
    assert!(fixture.credentials.values(&elsewhere).await.is_err());
}

#[tokio::test]
async fn concurrent_changes_are_all_made() {
    let fixture = Fixture::new().await;
    fixture.create(0, "one", "example.com").await;
    let changes = (0..6).map(|number| {
        let name = format!("answer-{number}");
        fixture.update("one", json!({"values": {name: number.to_string()}}))
    });
    futures::future::join_all(changes).await;
    let project = &fixture.projects[0];
    let row = fixture.credentials.get(project, "one").await;
    let row = row.map_err(|error| error.to_string()).unwrap();
    assert_eq!(row.revision, 7);
    let values = fixture.credentials.values(&row).await;
    let values = values.map_err(|error| error.to_string()).unwrap();
    let found: HashSet<_> = values
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret().to_owned()))
        .collect();
    for number in 0..6 {
        let name = format!("answer-{number}");
        assert!(found.contains(&(name.as_str(), number.to_string())));
    }
    assert_eq!(values.len(), 8);
}

#[tokio::test]
async fn time_step_is_used_once() {
    let fixture = Fixture::new().await;
    let row = fixture.create(0, "one", "example.com").await;
    let store = &fixture.credentials.store;
    let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
    let holder = row.id.as_str();
    let uses = (0..10).map(|_| store.use_totp_step(holder, at(60)));
    let used = futures::future::join_all(uses).await;
    let used = used.into_iter().filter(|used| *used.as_ref().unwrap());
    assert_eq!(used.count(), 1);
    assert!(!store.use_totp_step(holder, at(30)).await.unwrap());
    assert!(store.use_totp_step(holder, at(90)).await.unwrap());
    assert!(!store.use_totp_step(holder, at(90)).await.unwrap());
    // Of a code that was not written.
    store.release_totp_step(holder, at(90)).await.unwrap();
    assert!(!store.use_totp_step(holder, at(60)).await.unwrap());
    assert!(store.use_totp_step(holder, at(90)).await.unwrap());
    // The same secret has the same codes, and a new one has others.
    let same = json!({"totp_secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"});
    fixture.update("one", same).await;
    assert!(!store.use_totp_step(holder, at(90)).await.unwrap());
    let changes = json!({"totp_secret": "MFRGGZDFMZTWQ2LKMFRGGZDFMZTWQ2LK"});
    fixture.update("one", changes).await;
    assert!(store.use_totp_step(holder, at(30)).await.unwrap());
    assert_eq!(store.purge_totp_steps(at(30)).await.unwrap(), 0);
    assert_eq!(store.purge_totp_steps(at(31)).await.unwrap(), 1);
}

#[tokio::test]
async fn concurrent_fills_use_distinct_time_steps() {
    const FILLS: usize = 100;
    let fixture = Fixture::new().await;
    let row = fixture.create(0, "one", "example.com").await;
    let (credentials, options) = (&fixture.credentials, row.totp.unwrap());
    let secret = credentials.totp_secret(&row).await;
    let secret = secret.map_err(|error| error.to_string()).unwrap();
    let start = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let reserve = async |_: usize| {
        let mut now = start;
        loop {
            let reserved = credentials.try_reserve(row.id.as_str(), &secret, options, now);
            match reserved.await.map_err(|error| error.to_string()).unwrap() {
                Reservation::Reserved(code, end) => return (code, end),
                Reservation::WaitUntil(time) => now = time,
            }
        }
    };
    let reserved = futures::future::join_all((0..FILLS).map(reserve)).await;
    let ends: HashSet<_> = reserved.iter().map(|(_, end)| *end).collect();
    assert_eq!(ends.len(), FILLS);
    for (code, end) in &reserved {
        let expected = totp::code_at(&secret, options, *end - chrono::TimeDelta::seconds(1));
        assert_eq!(code.expose_secret(), expected.code.expose_secret());
    }
    // None of them was skipped.
    let last = *ends.iter().max().unwrap();
    assert_eq!((last - start).num_seconds(), 30 * FILLS as i64);
}

#[tokio::test]
async fn code_that_ends_too_soon_is_not_reserved() {
    let fixture = Fixture::new().await;
    let row = fixture.create(0, "one", "example.com").await;
    let (credentials, options) = (&fixture.credentials, row.totp.unwrap());
    let secret = credentials.totp_secret(&row).await;
    let secret = secret.map_err(|error| error.to_string()).unwrap();
    let late = DateTime::from_timestamp(1_800_000_029, 0).unwrap();
    let reserved = credentials.try_reserve(row.id.as_str(), &secret, options, late);
    let reserved = reserved.await.map_err(|error| error.to_string()).unwrap();
    let Reservation::WaitUntil(next) = reserved else {
        panic!("reserved a code that ends within a second");
    };
    assert_eq!(next.timestamp(), 1_800_000_030);
}

#[tokio::test]
async fn code_of_a_provider_is_used_in_its_own_time_step_only() {
    let fixture = Fixture::new().await;
    let at = |second: i64| DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap();
    let reserve = async |requested: i64, received: i64, now: i64| {
        let code = ComputedCode::new("123456".into(), at(requested), at(received));
        let reserved = fixture
            .credentials
            .try_reserve_computed("item", &code, at(now));
        match reserved.await.map_err(|error| error.to_string()).unwrap() {
            Reservation::Reserved(_, end) => Ok(end),
            Reservation::WaitUntil(time) => Err(time),
        }
    };
    // The step may have changed during the request, or since, or ends too soon.
    assert_eq!(reserve(29, 30, 30).await, Err(at(60)));
    assert_eq!(reserve(28, 29, 31).await, Err(at(60)));
    assert_eq!(reserve(28, 29, 29).await, Err(at(30)));
    assert_eq!(reserve(1, 2, 3).await, Ok(at(30)));
    assert_eq!(reserve(1, 2, 4).await, Err(at(30)));
    assert_eq!(reserve(31, 32, 33).await, Ok(at(60)));
}

#[tokio::test]
async fn damaged_secret_of_codes_is_replaced() {
    let fixture = Fixture::new().await;
    let row = fixture.create(0, "one", "example.com").await;
    let store = &fixture.credentials.store;
    let fields = store.sealed_fields(&row.id).await.unwrap();
    let secret = fields.iter().find(|field| field.field == TOTP_FIELD);
    let other = fields.iter().find(|field| field.field != TOTP_FIELD);
    overwrite(store, &row, secret.unwrap(), other.unwrap()).await;
    assert!(fixture.credentials.totp_secret(&row).await.is_err());
    let changes = json!({"totp_secret": "MFRGGZDFMZTWQ2LKMFRGGZDFMZTWQ2LK"});
    let row = fixture.update("one", changes).await;
    assert!(fixture.credentials.totp_secret(&row).await.is_ok());
}

#[tokio::test]
async fn credential_of_the_nearest_domain_is_found() {
    let fixture = Fixture::new().await;
    for (name, domain) in [
        ("a", "login.example.com"),
        ("b", "shop.example.org"),
        ("l", "app.localhost"),
    ] {
        fixture.create(0, name, domain).await;
    }
    let project = &fixture.projects[0];
    let find = async |host: &str| {
        let found = best_credential(&fixture.credentials, project, host).await;
        let found = found.map_err(|error| error.to_string())?;
        Ok::<_, String>(found.map(|row| row.name))
    };
    let name = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(find("login.example.com").await, name("a"));
    assert_eq!(find("a.login.example.com").await, name("a"));
    assert_eq!(find("www.example.com").await, name("a"));
    assert_eq!(find("example.com").await, name("a"));
    assert_eq!(find("www.example.net").await, Ok(None));
    assert_eq!(find("notexample.com").await, Ok(None));
    assert_eq!(find("localhost").await, Ok(None));
    fixture.create(0, "c", "example.com").await;
    assert_eq!(find("www.example.com").await, name("c"));
    assert_eq!(find("login.example.com").await, name("a"));
    fixture.create(0, "d", "pay.example.org").await;
    let refused = find("www.example.org").await.unwrap_err();
    assert!(refused.ends_with("b, d"), "{refused}");
}

#[tokio::test]
async fn deleted_project_takes_its_keys_with_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.credentials.store;
    fixture.create(1, "one", "example.com").await;
    let project = &fixture.projects[1];
    let outcome = store.delete_project(project, Utc::now()).await.unwrap();
    assert_eq!(outcome, crate::control::store::ProjectOutcome::NotEmpty);
    let deleted = fixture.credentials.delete(project, "one").await;
    deleted.map_err(|error| error.to_string()).unwrap();
    assert_eq!(store.data_keys(project.as_str()).await.unwrap().len(), 1);
    store.delete_project(project, Utc::now()).await.unwrap();
    assert_eq!(store.data_keys(project.as_str()).await.unwrap(), []);
}
