//! The deletion of keys, which takes effect even if it cannot be stored.

use std::time::Duration;

use chrono::Utc;

use super::{ApiKeys, CallerKey, Identity, KeyError};
use crate::{api::ids::KeyId, backoff::Backoff, control::store::StoreError};

/// The first and the longest delay before a failed deletion is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

impl ApiKeys {
    /// Deletes a key on behalf of `caller`. The key is invalid at once.
    ///
    /// Returns `DeletionNotStored` if the database rejects the deletion. The key is denied then,
    /// and the deletion repeated in the background.
    pub async fn delete(&self, caller: &Identity, id: &KeyId) -> Result<(), KeyError> {
        let row = self.get(caller.project.as_ref(), id).await?.row;
        let key = self.undenied(caller)?;
        let (store, target) = (self.store.clone(), id.clone());
        let deleting = async move { store.delete_api_key_for(&key, &target, Utc::now()).await };
        match self.revoke(deleting).await {
            Ok(outcome) => match outcome.done()? {
                true => Ok(()),
                false => Err(KeyError::NotFound),
            },
            Err(KeyError::Store(error)) => {
                self.check_caller(caller).await?;
                self.deny(row.id, row.public_part, &error);
                Err(KeyError::DeletionNotStored)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the key of a caller for the database. Rejects one that is denied.
    pub(in crate::control) fn undenied(&self, caller: &Identity) -> Result<CallerKey, KeyError> {
        if self.is_denied(&caller.public_part) {
            return Err(KeyError::CallerInvalid);
        }
        Ok(CallerKey {
            id: caller.key.clone(),
            public_part: caller.public_part.clone(),
        })
    }

    pub(super) fn is_denied(&self, public_part: &str) -> bool {
        self.denied.lock().contains(public_part)
    }

    /// Rejects a caller whose key has been revoked since its request was authenticated.
    async fn check_caller(&self, caller: &Identity) -> Result<(), KeyError> {
        match self.identify(&caller.public_part).await {
            Ok(_) => Ok(()),
            Err(KeyError::NotFound | KeyError::Expired) => Err(KeyError::CallerInvalid),
            Err(error) => Err(error),
        }
    }

    /// Denies a key from now on, and repeats its deletion unless that is being done already.
    fn deny(&self, id: KeyId, public_part: String, error: &StoreError) {
        self.forget_cached();
        if self.denied.lock().insert(public_part.clone()) {
            tracing::error!(key = %id, %error, "cannot delete an API key; retrying");
            self.shutdown
                .spawn(self.clone().repeat_deletion(id, public_part));
        }
    }

    async fn repeat_deletion(self, id: KeyId, public_part: String) {
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        while self.shutdown.sleep(delays.next_delay()).await {
            match self.store.delete_api_key(&id, Utc::now()).await {
                Ok(()) => {
                    tracing::info!(key = %id, "API key deleted");
                    self.access_changed();
                    self.denied.lock().remove(&public_part);
                    return;
                }
                Err(error) => tracing::warn!(key = %id, %error, "cannot delete an API key"),
            }
        }
        tracing::error!(key = %id, "an API key is not deleted and valid after a restart");
    }
}
