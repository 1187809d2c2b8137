//! The keys that sign tokens: their creation, their age, and their public parts.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey,
    jwk::{AlgorithmParameters, Jwk},
};
use secrecy::{ExposeSecret, zeroize::Zeroizing};

use crate::{
    api::jwks::JsonWebKey,
    control::{
        secret_token::random_hex,
        secrets::{Sealed, SealedPlace, SecretError, SecretScope, Secrets},
        state_dir::is_hex,
        store::{PUBLIC_KEY_BYTES, SigningKeyRow},
    },
};

/// The age of the newest key at which another one is created.
pub(super) const ROTATION_AGE: TimeDelta = TimeDelta::days(30);
/// The age from which on a key signs, if there is an older one: by then, all who have the published
/// keys in a cache have it too.
pub(super) const PUBLICATION_DELAY: TimeDelta = TimeDelta::minutes(10);
/// The age up to which a key is published and verifies. It has not signed for longer than a token
/// lasts then.
pub(super) const MAX_AGE: TimeDelta = TimeDelta::minutes(30 * 24 * 60 + 60);

/// The length of a key id in bytes. It is written as hexadecimal digits.
const KID_BYTES: usize = 8;
/// The field of the sealed private key.
const PRIVATE_KEY_FIELD: &str = "private_key";
/// The length of a private key in bytes.
const SEED_BYTES: usize = 32;
/// The bytes before the private key in its PKCS#8 form (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A public key that verifies tokens.
#[derive(Clone)]
pub(super) struct VerificationKey {
    pub(super) kid: String,
    bytes: [u8; PUBLIC_KEY_BYTES],
    pub(super) decoding: DecodingKey,
    created_at: DateTime<Utc>,
}

impl From<&SigningKeyRow> for VerificationKey {
    fn from(row: &SigningKeyRow) -> Self {
        VerificationKey {
            kid: row.kid.clone(),
            bytes: row.public_key,
            decoding: DecodingKey::from_ed_der(&row.public_key),
            created_at: row.created_at,
        }
    }
}

impl VerificationKey {
    /// Returns whether tokens of the key are accepted.
    pub(super) fn is_valid(&self, now: DateTime<Utc>) -> bool {
        now - self.created_at <= MAX_AGE
    }

    pub(super) fn to_jwk(&self) -> JsonWebKey {
        JsonWebKey::ed25519(self.kid.clone(), encode_public(&self.bytes))
    }
}

/// Returns whether a text has the form of a key id.
pub(super) fn is_kid(text: &str) -> bool {
    is_hex(text, KID_BYTES)
}

/// Returns whether there is no key that is young enough. The keys are sorted, newest first.
pub(super) fn is_rotation_due(keys: &[SigningKeyRow], now: DateTime<Utc>) -> bool {
    keys.first()
        .is_none_or(|newest| now - newest.created_at >= ROTATION_AGE)
}

/// Returns the key that signs. The keys are sorted, newest first.
pub(super) fn signer(keys: &[SigningKeyRow], now: DateTime<Utc>) -> Option<&SigningKeyRow> {
    let age = |key: &SigningKeyRow| now - key.created_at;
    let signs = |key: &&SigningKeyRow| age(key) < ROTATION_AGE + PUBLICATION_DELAY;
    let mut signers = keys.iter().filter(signs);
    let newest = signers.clone().next();
    signers.find(|key| age(key) >= PUBLICATION_DELAY).or(newest)
}

/// Generates a key and seals its private part.
pub(super) async fn generate(
    secrets: &Secrets,
    now: DateTime<Utc>,
) -> Result<SigningKeyRow, SecretError> {
    let mut seed = Zeroizing::new([0; SEED_BYTES]);
    getrandom::fill(&mut seed[..]).map_err(|error| SecretError::Memory(error.into()))?;
    let mut row = SigningKeyRow {
        kid: random_hex::<KID_BYTES>(),
        public_key: public_key(&encoding_key(&seed[..])).ok_or(SecretError::Damaged)?,
        key_version: 0,
        sealed_key: Vec::new(),
        created_at: now,
    };
    let keys = secrets.keys_of(&SecretScope::Organization).await?;
    let purpose = encode_public(&row.public_key);
    let sealed = keys.seal(&place(&row, &purpose), &seed[..])?;
    row.key_version = sealed.key_version;
    row.sealed_key = sealed.bytes;
    Ok(row)
}

/// Opens the private part of a key.
pub(super) async fn open(
    secrets: &Secrets,
    row: &SigningKeyRow,
) -> Result<EncodingKey, SecretError> {
    let keys = secrets.keys_of(&SecretScope::Organization).await?;
    let sealed = Sealed {
        key_version: row.key_version,
        bytes: row.sealed_key.clone(),
    };
    let purpose = encode_public(&row.public_key);
    let seed = keys.open(&place(row, &purpose), &sealed)?;
    match seed.expose_secret().len() {
        SEED_BYTES => Ok(encoding_key(seed.expose_secret())),
        _ => Err(SecretError::Damaged),
    }
}

/// Returns the place of a private key. It opens only beside its public key.
fn place<'a>(row: &'a SigningKeyRow, purpose: &'a str) -> SealedPlace<'a> {
    SealedPlace {
        record: &row.kid,
        purpose,
        field: PRIVATE_KEY_FIELD,
        revision: 1,
    }
}

fn encoding_key(seed: &[u8]) -> EncodingKey {
    let der = Zeroizing::new([&PKCS8_PREFIX[..], seed].concat());
    EncodingKey::from_ed_der(&der)
}

fn public_key(key: &EncodingKey) -> Option<[u8; PUBLIC_KEY_BYTES]> {
    let jwk = Jwk::from_encoding_key(key, Algorithm::EdDSA).ok()?;
    let AlgorithmParameters::OctetKeyPair(parameters) = jwk.algorithm else {
        return None;
    };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(parameters.x).ok()?;
    bytes.try_into().ok()
}

fn encode_public(bytes: &[u8; PUBLIC_KEY_BYTES]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8, age: TimeDelta) -> SigningKeyRow {
        SigningKeyRow {
            kid: format!("{number:016x}"),
            public_key: [number; PUBLIC_KEY_BYTES],
            key_version: 1,
            sealed_key: Vec::new(),
            created_at: DateTime::UNIX_EPOCH - age,
        }
    }

    #[test]
    fn public_key_is_that_of_the_test_vector() {
        // The first test of RFC 8032, section 7.1.
        let seed = [
            0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec,
            0x2c, 0xc4, 0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03,
            0x1c, 0xae, 0x7f, 0x60,
        ];
        let public = public_key(&encoding_key(&seed)).unwrap();
        assert_eq!(
            encode_public(&public),
            "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
        );
    }

    #[test]
    fn new_key_signs_once_it_is_published() {
        let now = DateTime::UNIX_EPOCH;
        let (minute, day) = (TimeDelta::minutes(1), TimeDelta::days(1));
        // The ages of the keys, newest first, and the number of the one that signs.
        let cases = [
            (vec![], None),
            (vec![minute], Some(0)),
            (vec![day], Some(0)),
            (vec![minute, day * 30], Some(1)),
            (vec![minute, day * 30 + minute * 9], Some(1)),
            (vec![minute, day * 30 + minute * 10], Some(0)),
            (vec![minute * 10, day * 30], Some(0)),
            (vec![day * 30 + minute * 10], None),
            (vec![-minute], Some(0)),
        ];
        for (ages, expected) in cases {
            let numbered = (0..).zip(&ages);
            let keys: Vec<_> = numbered.map(|(number, age)| key(number, *age)).collect();
            let found = signer(&keys, now).map(|key| key.public_key[0]);
            assert_eq!(found, expected, "{ages:?}");
        }
    }

    #[test]
    fn rotation_is_due_when_the_newest_key_is_old() {
        let now = DateTime::UNIX_EPOCH;
        let second = TimeDelta::seconds(1);
        let young = key(1, ROTATION_AGE - second);
        let old = key(2, ROTATION_AGE);
        assert!(is_rotation_due(&[], now));
        assert!(is_rotation_due(std::slice::from_ref(&old), now));
        assert!(!is_rotation_due(&[young, old], now));
    }
}
