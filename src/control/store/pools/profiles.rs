//! The profiles that the browsers of pools start with.

use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};

use super::{PoolRow, SavePoolError};
use crate::{
    api::ids::ProfileId,
    control::store::{
        Store, StoreError, corrupt,
        entity::{pool, profile},
        profiles::{lock_profile, profile_names},
    },
};

/// The profile of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolProfile {
    pub id: ProfileId,
    /// `None` if it has none, or was not read.
    pub name: Option<String>,
}

impl PoolProfile {
    pub(super) fn unnamed(id: ProfileId) -> PoolProfile {
        PoolProfile { id, name: None }
    }
}

impl Store {
    /// Adds the name of the profile to a row.
    pub(super) async fn with_profile(
        &self,
        row: Option<pool::Model>,
    ) -> Result<Option<PoolRow>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let mut row = [PoolRow::try_from(row)?];
        add_names(&self.db, &mut row).await?;
        let [row] = row;
        Ok(Some(row))
    }
}

/// Adds the names of the profiles to rows.
pub(super) async fn add_names(
    db: &impl ConnectionTrait,
    rows: &mut [PoolRow],
) -> Result<(), StoreError> {
    let profiles = rows.iter().filter_map(|row| row.profile.as_ref());
    let names = profile_names(db, profiles.map(|profile| &profile.id)).await?;
    for profile in rows.iter_mut().filter_map(|row| row.profile.as_mut()) {
        profile.name = names.get(profile.id.as_str()).cloned().flatten();
    }
    Ok(())
}

/// Locks the profile of a pool, which is not deleted until the end of the transaction. Adds its
/// name to the row.
pub(super) async fn lock_profile_of(
    transaction: &DatabaseTransaction,
    row: &mut PoolRow,
) -> Result<(), SavePoolError> {
    let Some(id) = row.settings.config.profile.clone() else {
        return Ok(());
    };
    let found = lock_profile(transaction, &id).await?;
    let found = found.filter(|profile| profile.project_id == row.project_id.as_str());
    let name = found.ok_or(SavePoolError::ProfileNotFound)?.name;
    row.profile = Some(PoolProfile { id, name });
    Ok(())
}

/// Returns the version of its profile that a browser must have to be leased. `None` if any one
/// will do.
pub(super) async fn required_version(
    db: &impl ConnectionTrait,
    row: &PoolRow,
) -> Result<Option<u64>, StoreError> {
    let Some(profile) = &row.profile else {
        return Ok(None);
    };
    if !row.settings.refresh_on_profile_update {
        return Ok(None);
    }
    let version: Option<i64> = profile::Entity::find_by_id(profile.id.as_str())
        .select_only()
        .column(profile::Column::Version)
        .into_tuple()
        .one(db)
        .await?;
    version.map(to_version).transpose()
}

pub(super) fn to_version(column: i64) -> Result<u64, StoreError> {
    u64::try_from(column).map_err(|_| corrupt("profile version", column))
}

/// Returns the name, or else the id, of a pool that has the profile.
pub(in crate::control::store) async fn pool_with_profile(
    db: &impl ConnectionTrait,
    profile: &ProfileId,
) -> Result<Option<String>, StoreError> {
    let found = pool::Entity::find()
        .filter(pool::Column::ProfileId.eq(profile.as_str()))
        .order_by_asc(pool::Column::Id)
        .limit(1)
        .one(db)
        .await?;
    Ok(found.map(|pool| pool.name.unwrap_or(pool.id)))
}
