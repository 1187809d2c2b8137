//! API keys: generated at random, shown once, stored as a digest.
//!
//! A key has the form `berth_<public part>_<secret>`. The public part identifies its row. The
//! SHA-256 digest of the complete key is compared in constant time.
//!
//! A key that was looked up is cached for a short time ([`AccessCache`]). Rotating or deleting a
//! key clears the cache of this process, so that only a change by another process goes unnoticed.
//!
//! A key whose deletion cannot be stored, as on a full disk, is denied by this process, which
//! repeats the deletion in the background ([`deletion`]).

use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    access_cache::{AccessCache, Generation},
    store::{ApiKeyRow, Authorized, CallerKey, NewApiKey, Store, StoreError},
};
use crate::{
    api::ids::{KeyId, ProjectId},
    shutdown::Shutdown,
};

mod deletion;

#[cfg(test)]
mod tests;

const PREFIX: &str = "berth_";
/// 48 bits, enough to make a collision of two keys improbable.
const PUBLIC_BYTES: usize = 6;
/// 256 bits.
const SECRET_BYTES: usize = 32;

/// The identity that a valid key proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub key: KeyId,
    pub name: String,
    /// Identifies the key and its current secret.
    pub public_part: String,
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
    #[error("the key belongs to another project")]
    ForeignProject,
    #[error(
        "the key would outlive the API key of the request, which expires at {}",
        .0.to_rfc3339_opts(SecondsFormat::Millis, true)
    )]
    OutlivesCaller(DateTime<Utc>),
    #[error("the API key of the request is no longer valid")]
    CallerInvalid,
    #[error(
        "the deletion of the API key cannot be stored yet; this server denies the key and repeats \
         the deletion until it succeeds or the server ends"
    )]
    DeletionNotStored,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("background task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// The service that creates and verifies keys. Clones share its cache.
#[derive(Clone)]
pub struct ApiKeys {
    store: Store,
    /// The keys by their public part.
    cache: Arc<AccessCache<String, KnownKey>>,
    /// The public parts of the keys whose deletion could not be stored yet.
    denied: Arc<Mutex<HashSet<String>>>,
    shutdown: Shutdown,
}

/// A key as the database has it. Its secret is verified by the digest.
#[derive(Clone)]
struct KnownKey {
    identity: Identity,
    digest: [u8; 32],
}

/// A new key.
struct GeneratedKey {
    public_part: String,
    key: SecretString,
    digest: [u8; 32],
}

impl ApiKeys {
    /// Returns the service. `shutdown` ends its background tasks.
    pub fn new(store: Store, shutdown: Shutdown) -> ApiKeys {
        ApiKeys {
            store,
            shutdown,
            cache: Arc::default(),
            denied: Arc::default(),
        }
    }

    /// Creates a key. Its text is returned only here.
    pub async fn create(
        &self,
        name: &str,
        project_id: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        let (new, key) = self.generate(name, project_id, expires_at).await?;
        let row = self.store.create_api_key(new, Utc::now()).await?;
        Ok((row, key))
    }

    /// Returns the values of a new key, and its text.
    async fn generate(
        &self,
        name: &str,
        project_id: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(NewApiKey, SecretString), KeyError> {
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
        Ok((new, generated.key))
    }

    /// Creates a key on behalf of `caller`, whose project and expiry it does not exceed. Without
    /// its own ones it has those of the caller.
    pub async fn create_for(
        &self,
        caller: &Identity,
        name: &str,
        project: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        let project = match (&caller.project, project) {
            (Some(bound), Some(requested)) if *bound != requested => {
                return Err(KeyError::ForeignProject);
            }
            (bound, requested) => requested.or_else(|| bound.clone()),
        };
        let expires_at = expires_at.or(caller.expires_at);
        caller.check_lifetime(expires_at)?;
        let (new, key) = self.generate(name, project, expires_at).await?;
        let caller = self.undenied(caller)?;
        let created = self.store.create_api_key_for(&caller, new, Utc::now());
        Ok((created.await?.done()?, key))
    }

    /// Verifies a key. Returns `NotFound` for any text that is not a valid key.
    pub async fn authenticate(&self, presented: &str) -> Result<Identity, KeyError> {
        let public_part = public_part(presented).ok_or(KeyError::NotFound)?;
        let key = self.find(public_part).await?;
        match bool::from(key.digest.ct_eq(&digest(presented))) {
            true => key.identity.unless_expired(),
            false => Err(KeyError::NotFound),
        }
    }

    /// Returns the identity of the key with that public part, whose secret was presented earlier.
    /// Returns `NotFound` if the key has been deleted or rotated since.
    pub async fn identify(&self, public_part: &str) -> Result<Identity, KeyError> {
        self.find(public_part).await?.identity.unless_expired()
    }

    async fn find(&self, public_part: &str) -> Result<KnownKey, KeyError> {
        if self.is_denied(public_part) {
            return Err(KeyError::NotFound);
        }
        if let Some(key) = self.cache.get(public_part) {
            return Ok(key);
        }
        let generation = self.cache.generation();
        let row = self.store.find_api_key_by_public_part(public_part).await?;
        let key = KnownKey::from(row.ok_or(KeyError::NotFound)?);
        self.insert(key.clone(), generation);
        Ok(key)
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

    /// Replaces the secret of a key on behalf of `caller`, whose project and expiry the key must
    /// not exceed. The old secret is invalid at once.
    pub async fn rotate(
        &self,
        caller: &Identity,
        id: &KeyId,
    ) -> Result<(ApiKeyRow, SecretString), KeyError> {
        // The project and the expiry of a key never change.
        let row = self.get(caller.project.as_ref(), id).await?;
        caller.check_lifetime(row.expires_at)?;
        let caller = self.undenied(caller)?;
        if self.is_denied(&row.public_part) {
            return Err(KeyError::NotFound);
        }
        let generated = GeneratedKey::generate();
        let (store, id) = (self.store.clone(), id.clone());
        let (public_part, digest) = (generated.public_part, generated.digest);
        let replacing = async move {
            store
                .replace_api_key_secret(&caller, &id, &public_part, digest, Utc::now())
                .await
        };
        let row = self.revoke(replacing).await?.done()?;
        Ok((row.ok_or(KeyError::NotFound)?, generated.key))
    }

    /// Caches a key that was read in `generation`, unless the cache was cleared since.
    fn insert(&self, key: KnownKey, generation: Generation) {
        let public_part = key.identity.public_part.clone();
        self.cache.insert(public_part, key, generation);
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
            this.cache.clear();
            outcome
        });
        Ok(revoking.await??)
    }
}

impl<T> Authorized<T> {
    fn done(self) -> Result<T, KeyError> {
        match self {
            Authorized::Done(value) => Ok(value),
            Authorized::CallerInvalid => Err(KeyError::CallerInvalid),
        }
    }
}

impl Identity {
    fn unless_expired(self) -> Result<Identity, KeyError> {
        match self.expires_at {
            Some(expiry) if expiry <= Utc::now() => Err(KeyError::Expired),
            _ => Ok(self),
        }
    }

    /// Rejects a key that would expire later than this one, or never.
    fn check_lifetime(&self, expires_at: Option<DateTime<Utc>>) -> Result<(), KeyError> {
        match self.expires_at {
            Some(limit) if expires_at.is_none_or(|expiry| expiry > limit) => {
                Err(KeyError::OutlivesCaller(limit))
            }
            _ => Ok(()),
        }
    }
}

impl From<ApiKeyRow> for KnownKey {
    fn from(row: ApiKeyRow) -> Self {
        KnownKey {
            identity: Identity {
                key: row.id,
                name: row.name,
                public_part: row.public_part,
                project: row.project_id,
                expires_at: row.expires_at,
            },
            digest: row.digest,
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
