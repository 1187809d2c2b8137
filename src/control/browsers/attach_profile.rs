//! Gives an active browser a profile.
//!
//! ```text
//! the browser has the profile, does not save it, and has the exclusive right to do so
//!      │ load: Chromium is closed, its user data replaced, and started again
//!      ├── loaded: it saves the profile at its end, if that was requested
//!      └── failed: it has no profile
//! ```
//!
//! A browser that ends in between, even with this process, does not save the profile: its user data
//! may not be that of the profile.

use super::{BrowserError, BrowserProfileError, Browsers, handle::BrowserHandle};
use crate::control::store::{AttachProfile, BrowserProfileRow};

impl Browsers {
    /// Loads a profile into an active browser that has none, and makes it the browser's. Does
    /// nothing if it is the browser's already. Nothing has changed after an error, except that
    /// Chromium may have been started again.
    pub(super) async fn attach_profile(
        &self,
        browser: &BrowserHandle,
        profile: BrowserProfileRow,
    ) -> Result<(), BrowserError> {
        let (store, id) = (&self.inner.store, browser.id());
        match store.attach_profile(id, &profile).await? {
            AttachProfile::Attached => {}
            AttachProfile::HasSame => return Ok(()),
            AttachProfile::NotActive => return Err(BrowserError::NotFound),
            AttachProfile::NotFound => return Err(BrowserProfileError::NotFound.into()),
            AttachProfile::HasOther => return Err(BrowserProfileError::HasProfile.into()),
            AttachProfile::InUse => return Err(BrowserProfileError::InUse.into()),
        }
        if let Err(error) = self.load_attached_profile(browser, &profile).await {
            if let Err(error) = store.detach_profile(id).await {
                tracing::error!(browser = %id, %error, "cannot record that a profile was not loaded");
            }
            return Err(error);
        }
        tracing::info!(browser = %id, profile = %profile.id, "profile loaded");
        Ok(())
    }

    async fn load_attached_profile(
        &self,
        browser: &BrowserHandle,
        profile: &BrowserProfileRow,
    ) -> Result<(), BrowserError> {
        self.load_profile(browser.lease(), &profile.id).await?;
        if profile.save_changes {
            let store = &self.inner.store;
            store.save_attached_profile(browser.id()).await?;
        }
        Ok(())
    }
}
