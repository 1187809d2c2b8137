//! The rotation of keys: a new key takes the place of one that remains valid for a while.

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::SecretString;

use super::{ApiKeys, Identity, KeyError};
use crate::{api::ids::KeyId, control::store::ApiKeyRecord};

/// The options of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The expiry of the new key. By default it is that of the old one.
    pub expires_at: Option<DateTime<Utc>>,
    /// The time for which the old key remains valid, unless it expires earlier.
    pub grace_period: TimeDelta,
}

impl ApiKeys {
    /// Creates a key with the name and the project of the key `id` on behalf of `caller`, whose
    /// project and expiry it does not exceed. The old key ends after the grace period.
    pub async fn rotate(
        &self,
        caller: &Identity,
        id: &KeyId,
        rotation: Rotation,
    ) -> Result<(ApiKeyRecord, SecretString), KeyError> {
        // The project and the name of the new key are those that the old one has now.
        let old = self.get(caller.project.as_ref(), id).await?.row;
        let now = Utc::now();
        let expires_at = rotation.expires_at.or(old.expires_at);
        if expires_at.is_some_and(|expiry| expiry <= now) {
            return Err(KeyError::RotationExpired);
        }
        caller.check_lifetime(expires_at)?;
        let prepared = self
            .prepare(&old.name, old.project_id, expires_at, Some(caller))
            .await?;
        let caller = self.undenied(caller)?;
        if self.is_denied(&old.public_part) {
            return Err(KeyError::NotFound);
        }
        let end = now + rotation.grace_period;
        let (store, id, new) = (self.store.clone(), id.clone(), prepared.new);
        let rotating = async move { store.rotate_api_key_for(&caller, &id, end, new, now).await };
        let row = self.revoke(rotating).await?.done()?;
        let record = ApiKeyRecord {
            row: row.ok_or(KeyError::NotFound)?,
            project_name: prepared.project_name,
        };
        Ok((record, prepared.key))
    }
}
