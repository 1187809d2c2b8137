//! Tokens of stored providers, which are sealed for their own row and address.

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::{
    control::{
        providers::{
            service::{ProviderServiceError, Providers},
            settings::ProviderSettingsConfig,
        },
        secrets::{SecretError, Secrets, key_ring::KeyRing},
        store::{ProviderRow, test_database::TestDatabase},
    },
    system::outbound::tests::loopback_client,
};

async fn create(providers: &Providers, number: u8) -> ProviderRow {
    let request = json!({
        "name": format!("provider {number}"),
        "provider_type": "kv",
        "base_url": "https://vault.example",
        "token": format!("token-{number}"),
    });
    let request = deserr::deserialize::<_, _, deserr::errors::JsonError>(request);
    let created = providers.create(request.unwrap()).await;
    created.map_err(|error| error.to_string()).unwrap()
}

/// Returns the token, or none if it is rejected as damaged.
async fn token(providers: &Providers, row: &ProviderRow) -> Option<String> {
    match providers.config(row).await {
        Ok(config) => Some(config.token.expose_secret().to_owned()),
        Err(ProviderServiceError::Secret(SecretError::Damaged)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn token_of_another_row_address_or_revision_and_flipped_bits_are_rejected() {
    let database = TestDatabase::create();
    let store = database.open().await;
    let ring = KeyRing::parse(&SecretString::from("1".repeat(64))).unwrap();
    let secrets = Secrets::open(store.clone(), ring).await.unwrap();
    let (config, client) = (ProviderSettingsConfig::default(), loopback_client());
    let providers = Providers::new(&config, client, &store, &secrets);
    let rows = [create(&providers, 0).await, create(&providers, 1).await];
    for [own, other] in [[0, 1], [1, 0]] {
        let (row, other) = (&rows[own], &rows[other]);
        let expected = format!("token-{own}");
        assert_eq!(token(&providers, row).await, Some(expected));
        let of_other_row = ProviderRow {
            sealed_token: other.sealed_token.clone(),
            ..row.clone()
        };
        let of_other_address = ProviderRow {
            base_url: "https://attacker.example".to_owned(),
            ..row.clone()
        };
        let of_other_revision = ProviderRow {
            token_revision: row.token_revision + 1,
            ..row.clone()
        };
        for changed in [of_other_row, of_other_address, of_other_revision] {
            assert_eq!(token(&providers, &changed).await, None, "{}", row.name);
        }
    }
    for bit in 0..rows[0].sealed_token.len() * 8 {
        let mut changed = rows[0].clone();
        changed.sealed_token[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(token(&providers, &changed).await, None, "bit {bit}");
    }
}
