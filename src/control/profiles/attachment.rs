//! Loads of profiles into active browsers, which have them afterwards.

use chrono::Utc;

use super::{Profiles, operation::Operation};
use crate::{
    api::ids::BrowserId,
    control::store::{AttachProfileError, BrowserProfileRow, Store, StoreError},
};

/// A profile that is being loaded into an active browser. Dropping it leaves the browser without a
/// profile, as does the death of this process.
pub struct Attachment {
    operation: Operation,
    store: Store,
}

impl Profiles {
    /// Begins to give an active browser a profile, which the caller loads.
    pub async fn begin_attachment(
        &self,
        browser: &BrowserId,
        profile: &BrowserProfileRow,
    ) -> Result<Attachment, AttachProfileError> {
        let (operation, store) = (self.new_operation(), self.inner.store.clone());
        let begun = store.begin_profile_attachment(operation.id(), browser, profile, Utc::now());
        match begun.await {
            Ok(()) => Ok(Attachment { operation, store }),
            // There may be a row, which is removed with the operation.
            Err(error @ AttachProfileError::Store(_)) => Err(error),
            Err(error) => {
                operation.set_ended();
                Err(error)
            }
        }
    }
}

impl Attachment {
    /// Makes the loaded profile that of the browser. Returns false if the browser has ended, or the
    /// leader has taken this process for dead: the browser then has no profile.
    pub async fn complete(self) -> Result<bool, StoreError> {
        let completed = self
            .store
            .complete_profile_attachment(self.operation.id())
            .await;
        match completed {
            Ok(true) => self.operation.set_ended(),
            _ => self.operation.end().await,
        }
        completed
    }

    /// Leaves the browser without a profile.
    pub async fn cancel(self) {
        self.operation.end().await;
    }
}
