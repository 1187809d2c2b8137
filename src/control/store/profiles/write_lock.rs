//! The exclusive right of a browser to save a profile.

use std::collections::HashSet;

use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect,
    QueryTrait, sea_query::SelectStatement,
};

use crate::{
    api::ids::{BrowserId, ProfileId},
    control::store::{
        Store, StoreError, browsers, corrupt,
        entity::{browser, profile_write_lock},
    },
};

impl Store {
    /// Returns the profile that a browser has the exclusive right to save, and is to save: not yet
    /// while the profile is being loaded into it.
    pub async fn saved_profile_of(&self, id: &BrowserId) -> Result<Option<ProfileId>, StoreError> {
        let saves = browser::Entity::find_by_id(id.as_str())
            .filter(browser::Column::SaveChanges.eq(true))
            .one(&self.db);
        if saves.await?.is_none() {
            return Ok(None);
        }
        let lock = profile_write_lock::Entity::find()
            .filter(profile_write_lock::Column::BrowserId.eq(id.as_str()))
            .one(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("profile id", id));
        lock.map(|lock| parse(lock.profile_id)).transpose()
    }

    /// Takes the exclusive right to save its profile from a browser, if it has it.
    pub async fn release_write_lock(&self, browser: &BrowserId) -> Result<(), StoreError> {
        delete_write_lock(&self.writer, browser).await
    }

    /// Returns the browsers that have the exclusive right to save a profile, or had it until they
    /// ended.
    pub(in crate::control::store) async fn browsers_with_write_lock(
        &self,
    ) -> Result<HashSet<String>, StoreError> {
        let locks = profile_write_lock::Entity::find().all(&self.db).await?;
        Ok(locks.into_iter().map(|lock| lock.browser_id).collect())
    }
}

/// Selects the browsers that have the exclusive right to save a profile.
pub(in crate::control::store) fn browsers_with_write_lock() -> SelectStatement {
    profile_write_lock::Entity::find()
        .select_only()
        .column(profile_write_lock::Column::BrowserId)
        .into_query()
}

/// Returns the browser with the exclusive right to save a profile. One that has ended does not
/// count: a program that knows no profiles may have closed its row.
pub(in crate::control::store) async fn write_lock(
    db: &impl ConnectionTrait,
    profile: &ProfileId,
) -> Result<Option<String>, StoreError> {
    let lock = profile_write_lock::Entity::find_by_id(profile.as_str())
        .one(db)
        .await?;
    let Some(lock) = lock else {
        return Ok(None);
    };
    let browser = browser::Entity::find_by_id(&lock.browser_id)
        .filter(browsers::has_not_ended())
        .one(db)
        .await?;
    Ok(browser.map(|browser| browser.id))
}

/// Takes the exclusive right to save its profile from a browser, if it has it.
pub(in crate::control::store) async fn delete_write_lock(
    db: &impl ConnectionTrait,
    browser: &BrowserId,
) -> Result<(), StoreError> {
    profile_write_lock::Entity::delete_many()
        .filter(profile_write_lock::Column::BrowserId.eq(browser.as_str()))
        .exec(db)
        .await?;
    Ok(())
}

/// Gives a browser the exclusive right to save a profile, in place of one that has ended.
pub(in crate::control::store) async fn set_write_lock(
    db: &impl ConnectionTrait,
    profile: &ProfileId,
    browser: &str,
) -> Result<(), StoreError> {
    profile_write_lock::Entity::delete_by_id(profile.as_str())
        .exec(db)
        .await?;
    let lock = profile_write_lock::Model {
        profile_id: profile.to_string(),
        browser_id: browser.to_owned(),
    };
    let insert = profile_write_lock::ActiveModel::from(lock).reset_all();
    profile_write_lock::Entity::insert(insert)
        .exec_without_returning(db)
        .await?;
    Ok(())
}
