//! Gives active browsers profiles.
//!
//! While a profile is being loaded into a browser, there is a row with both and with the process.
//! The browser has the profile when the load is complete.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, PaginatorTrait, QueryFilter,
    TransactionTrait, sea_query::Expr,
};

use super::{ACTIVE, BrowserProfileRow, is_active};
use crate::{
    api::ids::BrowserId,
    control::store::{
        Store, StoreError, UniqueConstraint, corrupt,
        entity::{browser, profile_attachment},
        profiles::{delete_write_lock, is_being_saved, lock_profile, set_write_lock, write_lock},
        to_millis,
    },
};

/// Why a browser is not given a profile. Nothing was changed, except perhaps after an error of the
/// database.
#[derive(Debug, thiserror::Error)]
pub enum AttachProfileError {
    #[error("the browser has the profile already")]
    HasSame,
    #[error("the browser has a profile already")]
    HasOther,
    #[error("a profile is being loaded into the browser")]
    Loading,
    #[error("the browser is not active")]
    NotActive,
    #[error("the profile does not exist")]
    NotFound,
    #[error("another browser is to save the profile")]
    InUse,
    #[error("the profile is being saved")]
    BeingSaved,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for AttachProfileError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::ProfileWriteLock) => Self::InUse,
            StoreError::UniqueViolation(UniqueConstraint::ProfileAttachment) => Self::Loading,
            other => Self::Store(other),
        }
    }
}

impl From<sea_orm::DbErr> for AttachProfileError {
    fn from(error: sea_orm::DbErr) -> Self {
        StoreError::from(error).into()
    }
}

impl Store {
    /// Records that this process loads a profile into an active browser that has none. If the
    /// browser is to save it, it has the exclusive right to do so from now on. `id` is a new one.
    ///
    /// The attachment must be completed or ended, as an operation.
    pub async fn begin_profile_attachment(
        &self,
        id: &str,
        browser: &BrowserId,
        profile: &BrowserProfileRow,
        now: DateTime<Utc>,
    ) -> Result<(), AttachProfileError> {
        let transaction = self.writer.begin().await?;
        check_attachable(&transaction, browser, profile).await?;
        if profile.save_changes {
            set_write_lock(&transaction, &profile.id, browser.as_str()).await?;
        }
        let attachment = profile_attachment::Model {
            id: id.to_owned(),
            browser_id: browser.to_string(),
            profile_id: profile.id.to_string(),
            save_changes: profile.save_changes,
            process_id: self.process_column(),
            started_at: to_millis(now),
        };
        let insert = profile_attachment::ActiveModel::from(attachment).reset_all();
        profile_attachment::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    /// Makes the profile of an attachment that of its browser, and ends the attachment. Returns
    /// false, and changes nothing, if it was ended or the browser is not active.
    pub async fn complete_profile_attachment(&self, id: &str) -> Result<bool, StoreError> {
        let found = profile_attachment::Entity::find_by_id(id)
            .one(&self.db)
            .await?;
        let Some(attachment) = found else {
            return Ok(false);
        };
        let transaction = self.writer.begin().await?;
        // In this order, which is that of the beginning.
        let attached = browser::Entity::update_many()
            .col_expr(
                browser::Column::ProfileId,
                Expr::value(attachment.profile_id),
            )
            .col_expr(
                browser::Column::SaveChanges,
                Expr::value(attachment.save_changes),
            )
            .filter(browser::Column::Id.eq(attachment.browser_id))
            .filter(browser::Column::ProfileId.is_null())
            .filter(is_active())
            .exec(&transaction)
            .await?;
        let ended = profile_attachment::Entity::delete_by_id(id)
            .exec(&transaction)
            .await?;
        if attached.rows_affected == 0 || ended.rows_affected == 0 {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Ends an attachment that is not completed, and with it the exclusive right of its browser to
    /// save the profile. Does nothing if it has ended.
    pub(in crate::control::store) async fn end_profile_attachment(
        &self,
        id: &str,
    ) -> Result<(), StoreError> {
        let found = profile_attachment::Entity::find_by_id(id)
            .one(&self.db)
            .await?;
        let Some(attachment) = found else {
            return Ok(());
        };
        let transaction = self.writer.begin().await?;
        let ended = profile_attachment::Entity::delete_by_id(id)
            .exec(&transaction)
            .await?;
        // Otherwise the browser has the profile.
        if ended.rows_affected > 0 {
            let browser = attachment.browser_id.parse::<BrowserId>();
            let browser = browser.map_err(|_| corrupt("browser id", attachment.browser_id))?;
            delete_write_lock(&transaction, &browser).await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// Locks a profile and an active browser until the end of the transaction. Returns why the browser
/// cannot be given the profile, if it cannot.
async fn check_attachable(
    transaction: &DatabaseTransaction,
    browser: &BrowserId,
    profile: &BrowserProfileRow,
) -> Result<(), AttachProfileError> {
    let locked = lock_profile(transaction, &profile.id).await?;
    // An update without effect locks the row.
    browser::Entity::update_many()
        .col_expr(browser::Column::State, Expr::value(ACTIVE))
        .filter(browser::Column::Id.eq(browser.as_str()))
        .filter(is_active())
        .exec(transaction)
        .await?;
    let row = browser::Entity::find_by_id(browser.as_str())
        .filter(is_active())
        .one(transaction)
        .await?;
    let row = row.ok_or(AttachProfileError::NotActive)?;
    if let Some(id) = row.profile_id {
        let is_same = id == profile.id.as_str() && row.save_changes == profile.save_changes;
        return Err(match is_same {
            true => AttachProfileError::HasSame,
            false => AttachProfileError::HasOther,
        });
    }
    if locked.is_none_or(|profile| profile.project_id != row.project_id) {
        return Err(AttachProfileError::NotFound);
    }
    let loads = profile_attachment::Entity::find()
        .filter(profile_attachment::Column::BrowserId.eq(browser.as_str()))
        .count(transaction);
    if loads.await? > 0 {
        return Err(AttachProfileError::Loading);
    }
    if !profile.save_changes {
        return Ok(());
    }
    if write_lock(transaction, &profile.id).await?.is_some() {
        return Err(AttachProfileError::InUse);
    }
    match is_being_saved(transaction, &profile.id).await? {
        true => Err(AttachProfileError::BeingSaved),
        false => Ok(()),
    }
}
