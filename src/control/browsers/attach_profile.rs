//! Gives an active browser a profile.
//!
//! ```text
//! the browser has no profile; a row has the one that is being loaded, and the process
//!      │ load: Chromium is closed, its user data replaced, and started again
//!      ├── loaded: the browser has the profile, and saves it at its end if that was requested
//!      └── failed, or the process has died: the row is removed
//! ```
//!
//! With `save_changes` the browser has the exclusive right to save the profile from the beginning.
//! A browser that ends in between does not save it: its user data may not be that of the profile.

use super::{BrowserError, BrowserProfileError, Browsers, handle::BrowserHandle};
use crate::control::store::{AttachProfileError, BrowserProfileRow};

impl Browsers {
    /// Loads a profile into an active browser that has none, and makes it the browser's. Does
    /// nothing if it is the browser's already.
    ///
    /// After an error the browser has no new profile, unless only the answer of the database was
    /// lost. Chromium may have been started again, and may have the user data of the profile.
    pub(super) async fn attach_profile(
        &self,
        browser: &BrowserHandle,
        profile: BrowserProfileRow,
    ) -> Result<(), BrowserError> {
        let (profiles, id) = (&self.inner.profiles, browser.id());
        let attachment = match profiles.begin_attachment(id, &profile).await {
            Ok(attachment) => attachment,
            Err(AttachProfileError::HasSame) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = self.load_profile(browser.lease(), &profile.id).await {
            attachment.cancel().await;
            return Err(error);
        }
        if !attachment.complete().await? {
            return Err(BrowserError::Abandoned);
        }
        tracing::info!(browser = %id, profile = %profile.id, "profile loaded");
        Ok(())
    }
}

impl From<AttachProfileError> for BrowserError {
    fn from(error: AttachProfileError) -> Self {
        let error = match error {
            AttachProfileError::HasSame | AttachProfileError::HasOther => {
                BrowserProfileError::HasProfile
            }
            AttachProfileError::Loading => BrowserProfileError::Loading,
            AttachProfileError::NotActive => return BrowserError::NotFound,
            AttachProfileError::NotFound => BrowserProfileError::NotFound,
            AttachProfileError::InUse => BrowserProfileError::InUse,
            AttachProfileError::BeingSaved => BrowserProfileError::BeingSaved,
            AttachProfileError::Store(error) => return error.into(),
        };
        error.into()
    }
}
