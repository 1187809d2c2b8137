//! The source of the operator's keys: the settings, or a file in the state directory.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use super::key_ring::{KeyRing, KeyRingError, UnknownKey};
use crate::control::{
    secret_token::random_hex,
    secrets::key::KEY_BYTES,
    state_dir::{StateDir, StateDirError},
    store::{Store, StoreError},
};

/// Holds the key of an installation whose operator has configured none.
const KEY_FILE: &str = "secrets-key";

/// Why the keys of stored secrets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RingSourceError {
    #[error("cannot read the keys of stored secrets: {0}")]
    Read(String),
    #[error("the keys of stored secrets in {origin} cannot be used: {error}")]
    Invalid { origin: String, error: KeyRingError },
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("{0}, and the state directory has no file {KEY_FILE}")]
    Missing(UnknownKey),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
}

/// Returns the configured keys, or else the one of the state directory. Creates that one, unless
/// the database needs another.
pub async fn open(
    configured: Option<&KeyRing>,
    state_dir: &StateDir,
    store: &Store,
) -> Result<KeyRing, RingSourceError> {
    if let Some(ring) = configured {
        return Ok(ring.clone());
    }
    if let Some(ring) = of_state_dir(state_dir)? {
        return Ok(ring);
    }
    if let Some(needed) = store.data_key_usage().await?.into_iter().next() {
        return Err(RingSourceError::Missing(UnknownKey(needed.key_id)));
    }
    let fresh = SecretString::from(random_hex::<KEY_BYTES>());
    let ring = parse(&fresh, KEY_FILE.to_owned())?;
    state_dir.write_secret(KEY_FILE, fresh.expose_secret())?;
    Ok(ring)
}

/// Returns the key of the state directory, if it has one.
pub(super) fn of_state_dir(state_dir: &StateDir) -> Result<Option<KeyRing>, RingSourceError> {
    let Some(text) = state_dir.read_secret(KEY_FILE)? else {
        return Ok(None);
    };
    let path: &Path = &state_dir.path().join(KEY_FILE);
    parse(&text, path.display().to_string()).map(Some)
}

/// Parses the keys that come from `origin`.
pub(super) fn parse(text: &SecretString, origin: String) -> Result<KeyRing, RingSourceError> {
    KeyRing::parse(text).map_err(|error| RingSourceError::Invalid { origin, error })
}
