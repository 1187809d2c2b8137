//! Removes archives that no version has.
//!
//! Archives of a version that was deleted are removed at once. A list of the blob store finds those
//! that a killed process has left.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::{BLOBS, ProfileError, Profiles, blob_key, blob_of};
use crate::control::{
    processes::Leadership,
    store::{BlobRemoval, StoreError},
};

/// Between two lists of the blob store.
const LIST_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The age of an archive without a version before it is removed. It limits what a database that was
/// restored from a backup loses, and has nothing to do with saves in progress.
const UNKNOWN_RETENTION: TimeDelta = TimeDelta::days(1);

impl Profiles {
    /// Removes the archives that no version has, hourly until shutdown, whenever this process
    /// leads.
    pub async fn collect(self, leadership: Leadership) {
        while self.inner.shutdown.sleep(LIST_INTERVAL).await {
            if !leadership.leads() {
                continue;
            }
            match self
                .collect_older_than(Utc::now() - UNKNOWN_RETENTION)
                .await
            {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "removed archives that no version has"),
                Err(error) => tracing::error!(%error, "cannot remove archives without a version"),
            }
        }
    }

    /// Removes the archives that no version has and that were stored before `before`. Returns how
    /// many.
    pub(super) async fn collect_older_than(
        &self,
        before: DateTime<Utc>,
    ) -> Result<u64, ProfileError> {
        let stored = self
            .inner
            .blobs
            .list_older_than(BLOBS.prefix, before)
            .await?;
        let blobs = stored.iter().filter_map(|key| blob_of(key));
        let blobs = blobs.map(str::to_owned).collect();
        let mut count = 0;
        for blob in self.inner.store.blobs_without_version(blobs).await? {
            count += u64::from(self.remove(&blob).await?);
        }
        Ok(count)
    }

    /// Removes those of the archives that nothing needs. What fails is left to
    /// [`Self::collect_older_than`].
    pub(super) fn remove_in_background(&self, blobs: Vec<String>) {
        if blobs.is_empty() {
            return;
        }
        let this = self.clone();
        self.inner.shutdown.spawn(async move {
            for blob in blobs {
                if let Err(error) = this.remove(&blob).await {
                    tracing::warn!(blob, %error, "cannot remove an archive yet");
                }
            }
        });
    }

    /// Removes an archive unless something needs it. Returns whether it was removed.
    pub(super) async fn remove(&self, blob: &str) -> Result<bool, ProfileError> {
        // Another task of this process removes it.
        if !self.set_active(blob) {
            return Ok(false);
        }
        let removed = self.try_remove(blob).await;
        self.set_inactive(blob);
        removed
    }

    async fn try_remove(&self, blob: &str) -> Result<bool, ProfileError> {
        let store = &self.inner.store;
        if !store.begin_blob_removal(blob, Utc::now()).await? {
            return Ok(false);
        }
        self.remove_stored(blob).await?;
        Ok(true)
    }

    /// Removes a stored archive, whatever needs it.
    pub(super) async fn remove_stored(&self, blob: &str) -> Result<(), ProfileError> {
        self.inner.blobs.remove(&blob_key(blob)).await?;
        Ok(self.inner.store.end_blob_removal(blob).await?)
    }

    /// Finishes a removal that this process has interrupted, or another one that has died.
    pub(super) async fn finish_removal(&self, removal: &BlobRemoval) -> Result<(), StoreError> {
        let blob = &removal.blob;
        if !self.set_active(blob) {
            return Ok(());
        }
        let adopted = self.inner.store.adopt_blob_removal(removal).await;
        if let Ok(true) = adopted
            && let Err(error) = self.remove_stored(blob).await
        {
            tracing::warn!(blob, %error, "cannot remove an archive yet");
        }
        self.set_inactive(blob);
        adopted.map(|_| ())
    }
}
