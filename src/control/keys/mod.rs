//! API keys: generated at random, shown once, stored as a digest.
//!
//! A key has the form `berth_<public part>_<secret>` ([`secret_token`]).
//!
//! [`rotation`] replaces a key by a new one; the old one remains valid for a while.
//!
//! A key that was looked up is cached for a short time ([`AccessCache`]). Rotating or deleting a
//! key clears the cache of this process, so that only a change by another process goes unnoticed.
//!
//! A key whose deletion cannot be stored, as on a full disk, is denied by this process, which
//! repeats the deletion in the background ([`deletion`]).

use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use secrecy::SecretString;

use super::{
    access_cache::{AccessCache, Generation},
    secret_token::{self, TokenFormat},
    store::{
        ApiKeyRecord, ApiKeyRow, Authorized, CallerKey, Hint, KeyCreator, KeyListing, NewApiKey,
        Store, StoreError,
    },
};
use crate::{
    api::ids::{KeyId, ProjectId},
    shutdown::Shutdown,
};

mod deletion;
mod rotation;

pub use rotation::Rotation;

#[cfg(test)]
mod tests;

/// The form of an API key.
pub const FORMAT: TokenFormat = TokenFormat { prefix: "berth_" };

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
        "the new key or token would outlive the API key of the request, which expires at {}",
        .0.to_rfc3339_opts(SecondsFormat::Millis, true)
    )]
    OutlivesCaller(DateTime<Utc>),
    #[error("the API key has expired; set days_to_expire to rotate it")]
    RotationExpired,
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

/// A key that is not stored yet.
struct PreparedKey {
    new: NewApiKey,
    key: SecretString,
    /// The name of its project.
    project_name: Option<String>,
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
        let prepared = self.prepare(name, project_id, expires_at, None).await?;
        let row = self.store.create_api_key(prepared.new, Utc::now()).await?;
        Ok((row, prepared.key))
    }

    /// Generates a key, and checks its project.
    async fn prepare(
        &self,
        name: &str,
        project_id: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
        created_by: Option<&Identity>,
    ) -> Result<PreparedKey, KeyError> {
        let project_name = match &project_id {
            Some(id) => {
                let project = self.store.find_project(id).await?;
                Some(project.ok_or(KeyError::UnknownProject)?.name)
            }
            None => None,
        };
        let generated = FORMAT.generate();
        let new = NewApiKey {
            name: name.to_owned(),
            public_part: generated.public_part,
            digest: generated.digest,
            project_id,
            expires_at,
            created_by: created_by.map(KeyCreator::from),
        };
        Ok(PreparedKey {
            new,
            key: generated.token,
            project_name,
        })
    }

    /// Creates a key on behalf of `caller`, whose project and expiry it does not exceed. Without
    /// its own ones it has those of the caller.
    pub async fn create_for(
        &self,
        caller: &Identity,
        name: &str,
        project: Option<ProjectId>,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(ApiKeyRecord, SecretString), KeyError> {
        let project = match (&caller.project, project) {
            (Some(bound), Some(requested)) if *bound != requested => {
                return Err(KeyError::ForeignProject);
            }
            (bound, requested) => requested.or_else(|| bound.clone()),
        };
        let expires_at = expires_at.or(caller.expires_at);
        caller.check_lifetime(expires_at)?;
        let prepared = self
            .prepare(name, project, expires_at, Some(caller))
            .await?;
        let caller = self.undenied(caller)?;
        let created = self
            .store
            .create_api_key_for(&caller, prepared.new, Utc::now())
            .await?;
        let record = ApiKeyRecord {
            row: created.done()?,
            project_name: prepared.project_name,
        };
        Ok((record, prepared.key))
    }

    /// Verifies a key. Returns `NotFound` for any text that is not a valid key.
    pub async fn authenticate(&self, presented: &str) -> Result<Identity, KeyError> {
        let public_part = FORMAT.public_part(presented).ok_or(KeyError::NotFound)?;
        let key = self.find(public_part).await?;
        match secret_token::matches(presented, &key.digest) {
            true => key.identity.unless_expired(),
            false => Err(KeyError::NotFound),
        }
    }

    /// Returns the identity of the key with that public part, whose secret was presented earlier.
    /// Returns `NotFound` if the key has been deleted since.
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
    pub async fn get(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<ApiKeyRecord, KeyError> {
        let record = self.store.find_api_key(scope, id).await?;
        record.ok_or(KeyError::NotFound)
    }

    /// Lists keys, with one more than the limit if there are more.
    pub async fn list(
        &self,
        scope: Option<&ProjectId>,
        listing: KeyListing,
    ) -> Result<Vec<ApiKeyRecord>, KeyError> {
        let query = listing.query.as_deref();
        let public_part = query.and_then(|text| FORMAT.masked_part(text));
        let listing = KeyListing {
            public_part,
            ..listing
        };
        Ok(self.store.list_api_keys(scope, &listing).await?)
    }

    /// Renames a key on behalf of `caller`.
    pub async fn rename(
        &self,
        caller: &Identity,
        id: &KeyId,
        name: &str,
    ) -> Result<ApiKeyRecord, KeyError> {
        let scope = caller.project.as_ref();
        self.get(scope, id).await?;
        let caller_key = self.undenied(caller)?;
        let renamed = self
            .store
            .rename_api_key_for(&caller_key, id, name, Utc::now());
        let renamed = renamed.await?.done()?;
        // Requests note the name of their key as that of the creator of further keys.
        self.access_changed();
        match renamed {
            true => self.get(scope, id).await,
            false => Err(KeyError::NotFound),
        }
    }

    /// Caches a key that was read in `generation`, unless the cache was cleared since.
    fn insert(&self, key: KnownKey, generation: Generation) {
        let public_part = key.identity.public_part.clone();
        self.cache.insert(public_part, key, generation);
    }

    /// Forgets the keys that are cached, because one may have changed.
    pub fn forget_cached(&self) {
        self.cache.clear();
    }

    /// Forgets the keys that are cached, here and at other processes.
    fn access_changed(&self) {
        self.forget_cached();
        self.store.hint(Hint::Access);
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
            this.access_changed();
            outcome
        });
        Ok(revoking.await??)
    }
}

impl<T> Authorized<T> {
    pub(in crate::control) fn done(self) -> Result<T, KeyError> {
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

    /// Rejects a key or token that would expire later than this one, or never.
    pub(in crate::control) fn check_lifetime(
        &self,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(), KeyError> {
        match self.expires_at {
            Some(limit) if expires_at.is_none_or(|expiry| expiry > limit) => {
                Err(KeyError::OutlivesCaller(limit))
            }
            _ => Ok(()),
        }
    }
}

impl From<&Identity> for KeyCreator {
    fn from(identity: &Identity) -> Self {
        KeyCreator {
            id: identity.key.clone(),
            name: identity.name.clone(),
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
