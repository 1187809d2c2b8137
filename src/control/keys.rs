//! API keys: made at random, shown once, kept as a digest.
//!
//! A key reads `berth_<public part>_<secret>`. The public part finds its record; the whole is compared by SHA-256 in constant time.

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
/// 48 bits: enough that no two keys share it.
const PUBLIC_BYTES: usize = 6;
/// 256 bits.
const SECRET_BYTES: usize = 32;

/// How long a key that was found good is trusted without asking the database. Bounds how long a key that another process revoked goes on working.
const TRUST: Duration = Duration::from_secs(2);
/// More keys than this are not remembered at once.
const MAX_TRUSTED: usize = 1024;

/// Who a good key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: KeyId,
    pub name: String,
    /// `None`: every project of the organization.
    pub project: Option<ProjectId>,
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("there is no such key")]
    NotFound,
    #[error("the key has expired")]
    Expired,
    #[error("there is no project with that id")]
    UnknownProject,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a task of ours failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The service that makes and checks keys; clones share it.
#[derive(Clone)]
pub struct ApiKeys {
    store: Store,
    memory: Arc<Mutex<Memory>>,
}

/// Keys that were found good.
#[derive(Default)]
struct Memory {
    trusted: HashMap<[u8; 32], Trusted>,
    /// Counts the times that all was forgotten: what was read before the last of them is not remembered after it.
    generation: u64,
}

struct Trusted {
    identity: Identity,
    until: Instant,
}

/// A key as it is shown once.
struct Fresh {
    public_part: String,
    whole: SecretString,
    digest: [u8; 32],
}

impl ApiKeys {
    pub fn new(store: Store) -> ApiKeys {
        ApiKeys {
            store,
            memory: Arc::default(),
        }
    }

    /// Makes a key; its secret cannot be asked for again.
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
        let fresh = Fresh::generate();
        let new = NewApiKey {
            name: name.to_owned(),
            public_part: fresh.public_part,
            digest: fresh.digest,
            project_id,
            expires_at,
        };
        let row = self.store.create_api_key(new, Utc::now()).await?;
        Ok((row, fresh.whole))
    }

    /// Who presents this key. `NotFound` for everything that is not a key of ours.
    pub async fn authenticate(&self, presented: &str) -> Result<Identity, KeyError> {
        let public_part = public_part(presented).ok_or(KeyError::NotFound)?;
        let digest = digest(presented);
        let identity = match self.recall(&digest) {
            Some(identity) => identity,
            None => {
                let generation = self.memory().generation;
                let row = self.store.find_api_key_by_public_part(public_part).await?;
                let row = row.ok_or(KeyError::NotFound)?;
                if !bool::from(row.digest.ct_eq(&digest)) {
                    return Err(KeyError::NotFound);
                }
                let identity = Identity::from(row);
                self.remember(digest, identity.clone(), generation);
                identity
            }
        };
        match identity.expires_at {
            Some(end) if end <= Utc::now() => Err(KeyError::Expired),
            _ => Ok(identity),
        }
    }

    /// The key `id`, as far as somebody bound to `scope` may see it.
    pub async fn get(&self, scope: Option<&ProjectId>, id: &KeyId) -> Result<ApiKeyRow, KeyError> {
        let row = self.store.find_api_key(scope, id).await?;
        row.ok_or(KeyError::NotFound)
    }

    /// Newest first; one more than `limit` where there are more.
    pub async fn list(
        &self,
        scope: Option<&ProjectId>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ApiKeyRow>, KeyError> {
        Ok(self.store.list_api_keys(scope, offset, limit).await?)
    }

    /// Gives the key a new secret; the old one stops working at once.
    pub async fn rotate(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        let fresh = Fresh::generate();
        let (store, scope, id) = (self.store.clone(), scope.cloned(), id.clone());
        let (public_part, digest) = (fresh.public_part, fresh.digest);
        let replacing = async move {
            store
                .replace_api_key_secret(scope.as_ref(), &id, &public_part, digest, Utc::now())
                .await
        };
        let row = self.revoke(replacing).await?;
        Ok((row.ok_or(KeyError::NotFound)?, fresh.whole))
    }

    /// The key stops working at once.
    pub async fn delete(&self, scope: Option<&ProjectId>, id: &KeyId) -> Result<(), KeyError> {
        let (store, scope, id) = (self.store.clone(), scope.cloned(), id.clone());
        let deleting = async move { store.delete_api_key(scope.as_ref(), &id).await };
        if self.revoke(deleting).await? {
            Ok(())
        } else {
            Err(KeyError::NotFound)
        }
    }

    fn recall(&self, digest: &[u8; 32]) -> Option<Identity> {
        let memory = self.memory();
        let entry = memory.trusted.get(digest)?;
        (entry.until > Instant::now()).then(|| entry.identity.clone())
    }

    /// Remembers what was read in `generation`, where that is still the latest.
    fn remember(&self, digest: [u8; 32], identity: Identity, generation: u64) {
        let now = Instant::now();
        let mut memory = self.memory();
        if memory.generation != generation {
            return;
        }
        let trusted = &mut memory.trusted;
        if trusted.len() >= MAX_TRUSTED {
            trusted.retain(|_, entry| entry.until > now);
        }
        if trusted.len() < MAX_TRUSTED {
            let until = now + TRUST;
            trusted.insert(digest, Trusted { identity, until });
        }
    }

    /// Does what makes keys bad, and forgets those known as good. Goes on when the client does not wait, so that the one is never done
    /// without the other.
    async fn revoke<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, KeyError> {
        let this = self.clone();
        let revoking = tokio::spawn(async move {
            let outcome = change.await;
            this.distrust();
            outcome
        });
        Ok(revoking.await??)
    }

    fn distrust(&self) {
        let mut memory = self.memory();
        memory.trusted.clear();
        memory.generation += 1;
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing in there can panic half-way.
        self.memory.lock()
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

impl Fresh {
    fn generate() -> Fresh {
        let public_part = random_hex::<PUBLIC_BYTES>();
        let whole = format!("{PREFIX}{public_part}_{}", random_hex::<SECRET_BYTES>());
        Fresh {
            public_part,
            digest: digest(&whole),
            whole: SecretString::from(whole),
        }
    }
}

/// How a key is shown once its secret is out of sight.
pub fn mask(public_part: &str) -> String {
    format!("{PREFIX}{public_part}_…")
}

/// The key's text goes to whoever asked for it, once.
pub fn reveal(key: &SecretString) -> String {
    key.expose_secret().to_owned()
}

/// `N` random bytes as lower-case hexadecimal digits.
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The public part of something that has the shape of a key.
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
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_sqlite(&folder.path().join("k.db"))
            .await
            .unwrap();
        (folder, ApiKeys::new(store))
    }

    #[tokio::test]
    async fn a_key_opens_until_it_is_deleted() {
        let (_folder, keys) = keys().await;
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
    async fn nothing_but_the_whole_key_opens() {
        let (_folder, keys) = keys().await;
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
            let answer = keys.authenticate(wrong).await;
            assert!(matches!(answer, Err(KeyError::NotFound)), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_rotated_key_opens_with_the_new_secret_alone() {
        let (_folder, keys) = keys().await;
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
    async fn what_was_read_of_a_key_before_it_was_revoked_is_not_remembered() {
        let (_folder, keys) = keys().await;
        for rotated in [true, false] {
            let (row, key) = keys.create("ci", None, None).await.unwrap();
            let key = key.expose_secret();
            // A check of the key that is overtaken between its reading the record and its remembering it.
            let generation = keys.memory().generation;
            let read = keys.get(None, &row.id).await.unwrap();
            if rotated {
                keys.rotate(None, &row.id).await.unwrap();
            } else {
                keys.delete(None, &row.id).await.unwrap();
            }
            keys.remember(digest(key), read.into(), generation);
            assert!(matches!(
                keys.authenticate(key).await,
                Err(KeyError::NotFound)
            ));
        }
    }

    #[tokio::test]
    async fn an_expired_key_is_refused_even_when_it_was_just_good() {
        let (_folder, keys) = keys().await;
        let past = Utc::now() - TimeDelta::milliseconds(1);
        let (_, key) = keys.create("old", None, Some(past)).await.unwrap();
        for _ in 0..2 {
            let answer = keys.authenticate(key.expose_secret()).await;
            assert!(matches!(answer, Err(KeyError::Expired)));
        }
    }

    #[tokio::test]
    async fn a_bound_key_is_bound_to_a_project_that_exists_and_seen_from_there_alone() {
        let (_folder, keys) = keys().await;
        let nowhere = keys.create("x", Some(ProjectId::generate()), None).await;
        assert!(matches!(nowhere, Err(KeyError::UnknownProject)));
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
