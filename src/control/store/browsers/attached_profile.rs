//! Gives active browsers profiles.

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, TransactionTrait, sea_query::Expr};

use super::{BrowserProfileRow, is_active};
use crate::{
    api::ids::BrowserId,
    control::store::{
        Store, StoreError, UniqueConstraint,
        entity::browser,
        profiles::{is_being_saved, lock_profile, set_write_lock, write_lock},
    },
};

/// The result of giving a browser a profile. Except for `Attached`, nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachProfile {
    Attached,
    /// The browser has this profile, in the same way.
    HasSame,
    /// The browser has a profile.
    HasOther,
    NotActive,
    NotFound,
    /// Another browser has the exclusive right to save the profile, or a save is in progress.
    InUse,
}

impl Store {
    /// Gives an active browser without a profile this one. The browser gets the exclusive right to
    /// save it, if it is to, but does not save it before [`Self::save_attached_profile`].
    pub async fn attach_profile(
        &self,
        id: &BrowserId,
        profile: &BrowserProfileRow,
    ) -> Result<AttachProfile, StoreError> {
        match self.try_attach_profile(id, profile).await {
            Err(StoreError::UniqueViolation(UniqueConstraint::ProfileWriteLock)) => {
                Ok(AttachProfile::InUse)
            }
            attached => attached,
        }
    }

    async fn try_attach_profile(
        &self,
        id: &BrowserId,
        profile: &BrowserProfileRow,
    ) -> Result<AttachProfile, StoreError> {
        let transaction = self.db.begin().await?;
        let locked = lock_profile(&transaction, &profile.id).await?;
        let attached = browser::Entity::update_many()
            .col_expr(browser::Column::ProfileId, Expr::value(profile.id.as_str()))
            .filter(browser::Column::Id.eq(id.as_str()))
            .filter(browser::Column::ProfileId.is_null())
            .filter(is_active())
            .exec(&transaction)
            .await?;
        let row = browser::Entity::find_by_id(id.as_str())
            .filter(is_active())
            .one(&transaction)
            .await?;
        let Some(row) = row else {
            return Ok(AttachProfile::NotActive);
        };
        if attached.rows_affected == 0 {
            let is_same = row.profile_id.as_deref() == Some(profile.id.as_str())
                && row.save_changes == profile.save_changes;
            return Ok(match is_same {
                true => AttachProfile::HasSame,
                false => AttachProfile::HasOther,
            });
        }
        if locked.is_none_or(|profile| profile.project_id != row.project_id) {
            return Ok(AttachProfile::NotFound);
        }
        if profile.save_changes {
            let is_in_use = is_being_saved(&transaction, &profile.id).await?
                || write_lock(&transaction, &profile.id).await?.is_some();
            if is_in_use {
                return Ok(AttachProfile::InUse);
            }
            set_write_lock(&transaction, &profile.id, id.as_str()).await?;
        }
        transaction.commit().await?;
        Ok(AttachProfile::Attached)
    }

    /// Makes a browser save the profile that it was given.
    pub async fn save_attached_profile(&self, id: &BrowserId) -> Result<(), StoreError> {
        browser::Entity::update_many()
            .col_expr(browser::Column::SaveChanges, Expr::value(true))
            .filter(browser::Column::Id.eq(id.as_str()))
            .filter(is_active())
            .exec(&self.db)
            .await?;
        Ok(())
    }

    /// Takes the profile from a browser that was given one.
    pub async fn detach_profile(&self, id: &BrowserId) -> Result<(), StoreError> {
        browser::Entity::update_many()
            .col_expr(browser::Column::ProfileId, Expr::value(None::<String>))
            .col_expr(browser::Column::SaveChanges, Expr::value(false))
            .filter(browser::Column::Id.eq(id.as_str()))
            .exec(&self.db)
            .await?;
        self.release_write_lock(id).await
    }
}
