//! API keys: generated at random, shown once, stored as a digest.
//!
//! A key has the form `berth_<public part>_<secret>`. The public part identifies its row. The
//! SHA-256 digest of the complete key is compared in constant time.
//!
//! A verified key is cached for [`CACHE_TTL`]. Rotating or deleting a key clears the cache of this
//! process, so the limit applies only to changes by other processes.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, MutexGuard};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::store::{ApiKeyRow, NewApiKey, Store, StoreError};
use crate::api::ids::{KeyId, ProjectId};

const PREFIX: &str = "berth_";
/// 48 bits, enough to make a collision of two keys improbable.
const PUBLIC_BYTES: usize = 6;
/// 256 bits.
const SECRET_BYTES: usize = 32;

/// The lifetime of a cached key. Bounds how long a key that another process revoked stays valid.
const CACHE_TTL: Duration = Duration::from_secs(2);
/// The most keys in the cache.
const MAX_CACHED: usize = 1024;

/// The identity that a valid key proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: KeyId,
    pub name: String,
    /// The project that the key is bound to, or `None` if it is valid for every project.
    pub project: Option<ProjectId>,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Why an operation on a key failed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("no such API key")]
    NotFound,
    #[error("the API key has expired")]
    Expired,
    #[error("no project with that id")]
    UnknownProject,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The service that creates and verifies keys. Clones share its cache.
#[derive(Clone)]
pub struct ApiKeys {
    store: Store,
    cache: Arc<Mutex<Cache>>,
}

/// The verified keys by their digest.
#[derive(Default)]
struct Cache {
    entries: HashMap<[u8; 32], CacheEntry>,
    /// Counts how often the cache was cleared. Rows that were read before the last time are stale.
    generation: u64,
}

struct CacheEntry {
    identity: Identity,
    expires_at: Instant,
}

/// A new key.
struct GeneratedKey {
    public_part: String,
    key: SecretString,
    digest: [u8; 32],
}

impl ApiKeys {
    pub fn new(store: Store) -> ApiKeys {
        ApiKeys {
            store,
            cache: Arc::default(),
        }
    }

    /// Creates a key. Its text is returned only here.
    pub async fn create(
        &self,
        name: &str,
        project_id: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        if let Some(id) = &project_id
            && self.store.find_project(id).await?.is_none()
        {
            return Err(KeyError::UnknownProject);
        }
        let generated = GeneratedKey::generate();
        let new = NewApiKey {
            name: name.to_owned(),
            public_part: generated.public_part,
            digest: generated.digest,
            project_id,
            expires_at,
        };
        let row = self.store.create_api_key(new, Utc::now()).await?;
        Ok((row, generated.key))
    }

    /// Verifies a key. Returns `NotFound` for any text that is not a valid key.
    pub async fn authenticate(&self, presented: &str) -> Result<Identity, KeyError> {
        let public_part = public_part(presented).ok_or(KeyError::NotFound)?;
        let digest = digest(presented);
        let identity = match self.cached(&digest) {
            Some(identity) => identity,
            None => {
                let generation = self.cache().generation;
                let row = self.store.find_api_key_by_public_part(public_part).await?;
                let row = row.ok_or(KeyError::NotFound)?;
                if !bool::from(row.digest.ct_eq(&digest)) {
                    return Err(KeyError::NotFound);
                }
                let identity = Identity::from(row);
                self.insert(digest, identity.clone(), generation);
                identity
            }
        };
        match identity.expires_at {
            Some(expiry) if expiry <= Utc::now() => Err(KeyError::Expired),
            _ => Ok(identity),
        }
    }

    /// Finds the key `id`. With a `scope`, only if it is bound to that project.
    pub async fn get(&self, scope: Option<&ProjectId>, id: &KeyId) -> Result<ApiKeyRow, KeyError> {
        let row = self.store.find_api_key(scope, id).await?;
        row.ok_or(KeyError::NotFound)
    }

    /// Lists keys, newest first, with one more than `limit` if there are more.
    pub async fn list(
        &self,
        scope: Option<&ProjectId>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ApiKeyRow>, KeyError> {
        Ok(self.store.list_api_keys(scope, offset, limit).await?)
    }

    /// Replaces the key's secret. The old one is invalid at once.
    pub async fn rotate(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        let generated = GeneratedKey::generate();
        let (store, scope, id) = (self.store.clone(), scope.cloned(), id.clone());
        let (public_part, digest) = (generated.public_part, generated.digest);
        let replacing = async move {
            store
                .replace_api_key_secret(scope.as_ref(), &id, &public_part, digest, Utc::now())
                .await
        };
        let row = self.revoke(replacing).await?;
        Ok((row.ok_or(KeyError::NotFound)?, generated.key))
    }

    /// Deletes the key, which is invalid at once.
    pub async fn delete(&self, scope: Option<&ProjectId>, id: &KeyId) -> Result<(), KeyError> {
        let (store, scope, id) = (self.store.clone(), scope.cloned(), id.clone());
        let deleting = async move { store.delete_api_key(scope.as_ref(), &id).await };
        if self.revoke(deleting).await? {
            Ok(())
        } else {
            Err(KeyError::NotFound)
        }
    }

    fn cached(&self, digest: &[u8; 32]) -> Option<Identity> {
        let cache = self.cache();
        let entry = cache.entries.get(digest)?;
        (entry.expires_at > Instant::now()).then(|| entry.identity.clone())
    }

    /// Caches an identity that was read in `generation`, unless the cache was cleared since.
    fn insert(&self, digest: [u8; 32], identity: Identity, generation: u64) {
        let now = Instant::now();
        let mut cache = self.cache();
        if cache.generation != generation {
            return;
        }
        let entries = &mut cache.entries;
        if entries.len() >= MAX_CACHED {
            entries.retain(|_, entry| entry.expires_at > now);
        }
        if entries.len() < MAX_CACHED {
            let entry = CacheEntry {
                identity,
                expires_at: now + CACHE_TTL,
            };
            entries.insert(digest, entry);
        }
    }

    /// Runs a change that invalidates keys, then clears the cache. Runs in a task, so that a client
    /// that disconnects cannot prevent the second step.
    async fn revoke<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, KeyError> {
        let this = self.clone();
        let revoking = tokio::spawn(async move {
            let outcome = change.await;
            this.clear_cache();
            outcome
        });
        Ok(revoking.await??)
    }

    fn clear_cache(&self) {
        let mut cache = self.cache();
        cache.entries.clear();
        cache.generation += 1;
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }
}

impl From<ApiKeyRow> for Identity {
    fn from(row: ApiKeyRow) -> Self {
        Identity {
            key: row.id,
            name: row.name,
            project: row.project_id,
            expires_at: row.expires_at,
        }
    }
}

impl GeneratedKey {
    fn generate() -> GeneratedKey {
        let public_part = random_hex::<PUBLIC_BYTES>();
        let key = format!("{PREFIX}{public_part}_{}", random_hex::<SECRET_BYTES>());
        GeneratedKey {
            public_part,
            digest: digest(&key),
            key: SecretString::from(key),
        }
    }
}

/// Returns the representation of a key without its secret.
pub fn mask(public_part: &str) -> String {
    format!("{PREFIX}{public_part}_…")
}

/// Returns the text of a key, to be shown once.
pub fn reveal(key: &SecretString) -> String {
    key.expose_secret().to_owned()
}

/// Returns `N` random bytes as lower-case hexadecimal digits.
#[expect(
    clippy::expect_used,
    reason = "without random numbers no secret can be created, and the kernel always has them"
)]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel provides random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns the public part of a text that has the form of a key.
fn public_part(presented: &str) -> Option<&str> {
    let (public, secret) = presented.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str, bytes: usize| {
        text.len() == 2 * bytes && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    (hex(public, PUBLIC_BYTES) && hex(secret, SECRET_BYTES)).then_some(public)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    async fn keys() -> (tempfile::TempDir, ApiKeys) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_sqlite(&directory.path().join("k.db"))
            .await
            .unwrap();
        (directory, ApiKeys::new(store))
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
        keys.delete(None, &row.id).await.unwrap();
        assert!(matches!(
            keys.authenticate(key).await,
            Err(KeyError::NotFound)
        ));
        assert!(matches!(
            keys.delete(None, &row.id).await,
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
        let (rotated, new) = keys.rotate(None, &row.id).await.unwrap();
        assert_eq!(rotated.id, row.id);
        assert!(keys.authenticate(old.expose_secret()).await.is_err());
        assert_eq!(
            keys.authenticate(new.expose_secret()).await.unwrap().key,
            row.id
        );
    }

    #[tokio::test]
    async fn identity_read_before_a_revocation_is_not_cached() {
        let (_directory, keys) = keys().await;
        for rotated in [true, false] {
            let (row, key) = keys.create("ci", None, None).await.unwrap();
            let key = key.expose_secret();
            // A verification whose key is revoked between reading the row and caching it.
            let generation = keys.cache().generation;
            let read = keys.get(None, &row.id).await.unwrap();
            if rotated {
                keys.rotate(None, &row.id).await.unwrap();
            } else {
                keys.delete(None, &row.id).await.unwrap();
            }
            keys.insert(digest(key), read.into(), generation);
            assert!(matches!(
                keys.authenticate(key).await,
                Err(KeyError::NotFound)
            ));
        }
    }

    #[tokio::test]
    async fn expired_key_is_rejected_even_if_cached() {
        let (_directory, keys) = keys().await;
        let past = Utc::now() - TimeDelta::milliseconds(1);
        let (_, key) = keys.create("old", None, Some(past)).await.unwrap();
        for _ in 0..2 {
            let result = keys.authenticate(key.expose_secret()).await;
            assert!(matches!(result, Err(KeyError::Expired)));
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
        assert!(matches!(
            keys.rotate(Some(&there), &row.id).await,
            Err(KeyError::NotFound)
        ));
        assert!(matches!(
            keys.delete(Some(&there), &row.id).await,
            Err(KeyError::NotFound)
        ));
        assert_eq!(keys.list(Some(&there), 0, 10).await.unwrap(), []);
        assert_eq!(keys.list(None, 0, 10).await.unwrap(), [row]);
    }
}
