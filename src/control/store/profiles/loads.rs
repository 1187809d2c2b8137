//! Reads versions of profiles whose archives must not be removed meanwhile.

use chrono::{DateTime, Utc};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, QueryFilter, sea_query::Expr};

use super::ProfileVersionRow;
use crate::{
    api::ids::ProfileId,
    control::store::{
        ControlProcessId, Store, StoreError, corrupt,
        entity::{profile, profile_attachment, profile_operation, profile_version},
        to_millis,
    },
};

/// The most attempts to read a current version that changes meanwhile.
const MAX_ATTEMPTS: u32 = 100;

/// A load in progress. It must be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileLoad {
    pub id: String,
    pub version: ProfileVersionRow,
}

impl Store {
    /// Begins a load of the current version of a profile, and records that the profile is used.
    /// Returns `None` if it has no version, or does not exist. `operation_id` is a new id.
    pub async fn begin_profile_load(
        &self,
        operation_id: String,
        id: &ProfileId,
        now: DateTime<Utc>,
    ) -> Result<Option<ProfileLoad>, StoreError> {
        profile::Entity::update_many()
            .col_expr(profile::Column::LastUsedAt, Expr::value(to_millis(now)))
            .filter(profile::Column::Id.eq(id.as_str()))
            .exec(&self.writer)
            .await?;
        while let Some(version) = self.current_profile_version(id).await? {
            let operation = profile_operation::Model {
                id: operation_id.clone(),
                profile_id: id.to_string(),
                saving_profile_id: None,
                base_version: version.number,
                blob: Some(version.blob.clone()),
                process_id: self.process_column(),
                started_at: to_millis(now),
            };
            let insert = profile_operation::ActiveModel::from(operation.clone()).reset_all();
            profile_operation::Entity::insert(insert)
                .exec_without_returning(&self.writer)
                .await?;
            // In this order: once the operation has its row, the archive of a version that exists
            // is not removed.
            let key = (version.profile_id.clone(), version.number);
            let found = profile_version::Entity::find_by_id(key).one(&self.db);
            if found.await?.is_some() {
                return Ok(Some(ProfileLoad {
                    id: operation.id,
                    version: version.try_into()?,
                }));
            }
            self.end_profile_operation(&operation.id).await?;
        }
        Ok(None)
    }

    /// Returns the current version of a profile. `None` if it has none, or does not exist.
    async fn current_profile_version(
        &self,
        id: &ProfileId,
    ) -> Result<Option<profile_version::Model>, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let profile = profile::Entity::find_by_id(id.as_str())
                .filter(profile::Column::DeletedAt.is_null())
                .one(&self.db)
                .await?;
            let Some(profile) = profile.filter(|row| row.version > 0) else {
                return Ok(None);
            };
            let key = (id.to_string(), profile.version);
            let found = profile_version::Entity::find_by_id(key)
                .one(&self.db)
                .await?;
            // Otherwise others were published in between.
            if found.is_some() {
                return Ok(found);
            }
        }
        Err(corrupt("current version of profile", id))
    }

    /// Returns the current version of a profile as a row. `None` if it has none, or does not exist.
    pub async fn find_current_profile_version(
        &self,
        id: &ProfileId,
    ) -> Result<Option<ProfileVersionRow>, StoreError> {
        let found = self.current_profile_version(id).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Ends a save, a load, or an attachment. Does nothing if it has ended.
    pub async fn end_profile_operation(&self, id: &str) -> Result<(), StoreError> {
        self.end_profile_attachment(id).await?;
        profile_operation::Entity::delete_by_id(id)
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns the saves, loads and attachments that have not ended, with the processes that run
    /// them.
    pub async fn profile_operations(
        &self,
    ) -> Result<Vec<(String, Option<ControlProcessId>)>, StoreError> {
        let rows = profile_operation::Entity::find().all(&self.db).await?;
        let operations = rows.into_iter().map(|row| (row.id, row.process_id));
        let rows = profile_attachment::Entity::find().all(&self.db).await?;
        let attachments = rows.into_iter().map(|row| (row.id, row.process_id));
        Ok(operations
            .chain(attachments)
            .map(|(id, process)| (id, process.map(ControlProcessId)))
            .collect())
    }
}
