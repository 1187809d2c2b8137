//! Restores versions in browsers.

use chrono::Utc;

use super::{ProfileError, Profiles};
use crate::{
    api::ids::ProfileId,
    control::{fleet::Lease, store::ProfileVersionRow},
};

impl Profiles {
    /// Replaces the user data of a browser by the current version of a profile, and records that
    /// the profile is used. Returns the version, or `None` if the profile has none: the browser
    /// then stays as it is.
    ///
    /// Chromium is started again, and may not respond yet.
    pub async fn load(
        &self,
        lease: &Lease,
        profile: &ProfileId,
    ) -> Result<Option<ProfileVersionRow>, ProfileError> {
        let store = &self.inner.store;
        let operation = self.new_operation();
        let id = operation.id().to_owned();
        let Some(load) = store.begin_profile_load(id, profile, Utc::now()).await? else {
            operation.set_ended();
            return Ok(None);
        };
        let restored = self.restore_in(lease, &load.version).await;
        operation.end().await;
        restored.map(|()| Some(load.version))
    }

    async fn restore_in(
        &self,
        lease: &Lease,
        version: &ProfileVersionRow,
    ) -> Result<(), ProfileError> {
        let size = version.size_bytes;
        let archive = self.read(version, 0..size).await?;
        let restored = lease.restore_user_data(archive, size).await;
        restored.map_err(ProfileError::Restore)
    }
}
