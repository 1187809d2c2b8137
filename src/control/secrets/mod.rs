//! Secrets at rest: sealed before they are stored, opened when they are used.
//!
//! ```text
//! key ring (operator) ──wraps──▶ data key of a project, or of the organization
//!                                    └──seals──▶ field of a record
//! ```
//!
//! - [`key`]: one key of the operator, identified by a digest. [`key_ring`]: all of them; the first
//!   wraps new data keys. [`settings`], [`ring_source`]: their source.
//! - [`cipher`]: the authenticated encryption, and the place that each ciphertext is bound to.
//! - [`data_keys`]: the keys that seal fields.
//! - [`rotation`]: wraps data keys with another key of the operator.
//!
//! A data key is unwrapped for each use and not retained. Nothing here can be printed.

use std::sync::Arc;

use chrono::Utc;
use secrecy::{ExposeSecret, SecretSlice, SecretString};

use super::store::{AddDataKey, Store, StoreError};

mod cipher;
mod data_keys;
pub mod key;
pub mod key_ring;
pub mod ring_source;
pub mod rotation;
pub mod settings;
#[cfg(test)]
mod tests;

pub use cipher::{Sealed, SealedPlace};
pub use data_keys::{DataKeys, SecretScope};
use key_ring::{KeyRing, UnknownKey};

/// Why a secret was not sealed or opened. No variant has a part of a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The key is in no list of this process. Another process may have wrapped with it.
    #[error(transparent)]
    UnknownKey(#[from] UnknownKey),
    #[error("the key {0} is retired")]
    RetiredKey(String),
    /// The ciphertext is damaged, or belongs to another place.
    #[error("a stored secret is damaged")]
    Damaged,
    #[error("cannot hold a key in memory: {0}")]
    Memory(std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service that seals secrets. Clones share its keys.
#[derive(Clone)]
pub struct Secrets {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    ring: KeyRing,
}

impl Secrets {
    /// Returns the service, if the ring has each key that the database needs.
    ///
    /// # Errors
    /// Names the missing key.
    pub async fn open(store: Store, ring: KeyRing) -> Result<Secrets, SecretError> {
        // A key of another ring has another id, so this also finds rows that were changed.
        for wrapped in store.data_key_of_each_key().await? {
            data_keys::unwrap(&ring, &wrapped)?;
        }
        if let Some(primary) = ring.primary_id()
            && store.is_retired_key(primary).await?
        {
            return Err(SecretError::RetiredKey(primary.to_owned()));
        }
        let secrets = Secrets {
            inner: Arc::new(Inner { store, ring }),
        };
        // Other processes with other keys do not start from here on.
        secrets.keys_of(&SecretScope::Organization).await?;
        Ok(secrets)
    }

    /// Returns the keys of a scope. Its first key is created at first use.
    ///
    /// # Errors
    /// If the database is not available, or a key of the operator is missing.
    pub async fn keys_of(&self, scope: &SecretScope) -> Result<DataKeys, SecretError> {
        let Inner { store, ring } = &*self.inner;
        let mut rows = store.data_keys(scope.as_str()).await?;
        if rows.is_empty() {
            let row = data_keys::generate(ring, scope)?;
            match store.add_data_key(&row, Utc::now()).await? {
                AddDataKey::Added => rows.push(row),
                AddDataKey::Exists => rows = store.data_keys(scope.as_str()).await?,
                AddDataKey::KeyRetired => return Err(SecretError::RetiredKey(row.key_id)),
            }
        }
        DataKeys::unwrap_all(ring, scope.clone(), &rows)
    }
}

/// Returns the text that was sealed.
pub fn to_text(secret: &SecretSlice<u8>) -> Result<SecretString, SecretError> {
    let text = std::str::from_utf8(secret.expose_secret());
    Ok(text.map_err(|_| SecretError::Damaged)?.into())
}
