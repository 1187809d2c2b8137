//! The tables of profiles, their versions, and the operations on them.
//!
//! [`saves`] publishes versions, [`loads`] reads them, [`blobs`] decides which archives are still
//! needed, [`mod@write_lock`] is the exclusive right of a browser to save a profile.
//!
//! A transaction that changes a profile, or makes a browser the one that saves it, locks the row of
//! the profile first. So of two that want to save it, one is refused.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select, TransactionTrait,
    sea_query::Expr,
};

use super::{
    Store, StoreError,
    auth_connections::{connection_with_profile, rename_profile_of_connections},
    browsers, corrupt,
    entity::{browser, profile, profile_attachment, profile_operation, profile_version},
    from_millis,
    pools::pool_with_profile,
    projects::lock_active_project,
    search::contains,
    to_millis,
    webhooks::events::record_profile_not_saved,
};
use crate::api::{
    ids::{BrowserId, ProfileId, ProjectId},
    profiles::ArchiveContent,
};

mod blobs;
mod loads;
mod saves;
#[cfg(test)]
mod tests;
mod write_lock;

pub use blobs::BlobRemoval;
pub use loads::ProfileLoad;
pub use saves::{
    BeginSave, NewProfileVersion, ProfileSave, PublishedVersion, RestoreOutcome, SaveSource,
};
pub(super) use write_lock::{
    browsers_with_write_lock, delete_write_lock, set_write_lock, write_lock,
};

/// A row of the table of profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRow {
    pub id: ProfileId,
    pub project_id: ProjectId,
    pub name: Option<String>,
    /// The number of the current version, 0 before the first one.
    pub version: u64,
    pub size_bytes: Option<u64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub last_used_at: Option<DateTime<Utc>>,
    /// Why the last save failed, and when.
    pub save_failure: Option<(String, DateTime<Utc>)>,
}

/// A row of the table of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileVersionRow {
    pub profile_id: ProfileId,
    pub number: u64,
    /// The name of the archive: its SHA-256, and an id unless an earlier version has stored it.
    pub blob: String,
    pub size_bytes: u64,
    pub content: ArchiveContent,
    pub chromium_version: Option<String>,
    pub restored_from: Option<u64>,
    pub created_at: DateTime<Utc>,
}

impl ProfileVersionRow {
    /// Returns the SHA-256 of the archive in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        self.blob
            .split_once('-')
            .map_or(&self.blob, |(digest, _)| digest)
    }
}

/// A page of the list of profiles, with its filters.
#[derive(Debug, Clone, Default)]
pub struct ProfileListing {
    pub name: Option<String>,
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// Why the row of a profile was not inserted.
#[derive(Debug, thiserror::Error)]
pub enum CreateProfileError {
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The result of deleting a profile. Except for `Deleted`, nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum DeleteProfileOutcome {
    /// Has the archives of its versions, which other profiles may have, too.
    Deleted(Vec<String>),
    NotFound,
    /// A browser has the profile, or it is being saved or loaded.
    InUse,
    /// A pool with that name, or else that id, has the profile.
    UsedByPool(String),
    /// The auth connection with that id logs the profile in.
    UsedByConnection(String),
}

impl TryFrom<profile::Model> for ProfileRow {
    type Error = StoreError;

    fn try_from(row: profile::Model) -> Result<Self, StoreError> {
        let failed_at = row.save_failed_at.map(from_millis).transpose()?;
        Ok(ProfileRow {
            id: row.id.parse().map_err(|_| corrupt("profile id", &row.id))?,
            project_id: row
                .project_id
                .parse()
                .map_err(|_| corrupt("project id", &row.project_id))?,
            name: row.name,
            version: natural(row.version)?,
            size_bytes: row.size_bytes.map(natural).transpose()?,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
            last_used_at: row.last_used_at.map(from_millis).transpose()?,
            save_failure: row.save_error.zip(failed_at),
        })
    }
}

impl TryFrom<profile_version::Model> for ProfileVersionRow {
    type Error = StoreError;

    fn try_from(row: profile_version::Model) -> Result<Self, StoreError> {
        let content = serde_json::from_str(&row.receipt);
        Ok(ProfileVersionRow {
            profile_id: row
                .profile_id
                .parse()
                .map_err(|_| corrupt("profile id", &row.profile_id))?,
            number: natural(row.number)?,
            size_bytes: natural(row.size_bytes)?,
            content: content.map_err(|_| corrupt("receipt", row.number))?,
            chromium_version: row.chromium_version,
            restored_from: row.restored_from.map(natural).transpose()?,
            created_at: from_millis(row.created_at)?,
            blob: row.blob,
        })
    }
}

impl Store {
    /// Creates a profile, if its project is active. The name must be unique among the project's
    /// profiles that are not deleted.
    pub async fn create_profile(
        &self,
        project: &ProjectId,
        name: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<ProfileRow, CreateProfileError> {
        let row = profile::Model {
            id: ProfileId::generate().to_string(),
            project_id: project.to_string(),
            name: name.map(str::to_owned),
            live_name: name.map(str::to_owned),
            version: 0,
            size_bytes: None,
            created_at: to_millis(now),
            updated_at: to_millis(now),
            last_used_at: None,
            deleted_at: None,
            save_error: None,
            save_failed_at: None,
        };
        let transaction = self.writer.begin().await.map_err(StoreError::from)?;
        // Until the commit, the project is neither archived nor deleted.
        let active = lock_active_project(&transaction, project).await?;
        active.ok_or(CreateProfileError::ProjectInactive)?;
        let insert = profile::ActiveModel::from(row.clone()).reset_all();
        profile::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await
            .map_err(StoreError::from)?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(row.try_into()?)
    }

    /// Finds a profile of `project` that is not deleted by its id.
    pub async fn find_profile(
        &self,
        project: &ProjectId,
        id: &ProfileId,
    ) -> Result<Option<ProfileRow>, StoreError> {
        let found = undeleted(project).filter(profile::Column::Id.eq(id.as_str()));
        let found = found.one(&self.db).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Finds a profile of `project` that is not deleted by its name.
    pub async fn find_profile_named(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<ProfileRow>, StoreError> {
        let found = undeleted(project).filter(profile::Column::LiveName.eq(name));
        let found = found.one(&self.db).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Lists profiles that are not deleted, newest first, with one row more than the limit if there
    /// are more.
    pub async fn list_profiles(
        &self,
        project: &ProjectId,
        listing: &ProfileListing,
    ) -> Result<Vec<ProfileRow>, StoreError> {
        let mut query = undeleted(project);
        if let Some(name) = &listing.name {
            query = query.filter(profile::Column::LiveName.eq(name));
        }
        if let Some(text) = &listing.query {
            let columns = [profile::Column::Id, profile::Column::Name];
            query = query.filter(contains(text, &columns));
        }
        let rows = query
            .order_by_desc(profile::Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Changes the name of a profile, also in its auth connections. Returns `None` if it does not
    /// exist.
    pub async fn rename_profile(
        &self,
        project: &ProjectId,
        id: &ProfileId,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<ProfileRow>, StoreError> {
        let transaction = self.writer.begin().await?;
        let row = lock_profile(&transaction, id).await?;
        let row = row.filter(|row| row.project_id == project.as_str());
        let Some(row) = row else {
            return Ok(None);
        };
        profile::Entity::update_many()
            .col_expr(profile::Column::Name, Expr::value(name))
            .col_expr(profile::Column::LiveName, Expr::value(name))
            .col_expr(profile::Column::UpdatedAt, Expr::value(to_millis(now)))
            .filter(profile::Column::Id.eq(id.as_str()))
            .exec(&transaction)
            .await?;
        if let Some(before) = row.live_name {
            let names = (before.as_str(), name);
            rename_profile_of_connections(&transaction, &row.project_id, names).await?;
        }
        transaction.commit().await?;
        self.find_profile(project, id).await
    }

    /// Deletes a profile that is not in use, with its versions. Its row remains, its name becomes
    /// free.
    pub async fn delete_profile(
        &self,
        project: &ProjectId,
        id: &ProfileId,
        now: DateTime<Utc>,
    ) -> Result<DeleteProfileOutcome, StoreError> {
        let transaction = self.writer.begin().await?;
        let row = lock_profile(&transaction, id).await?;
        let row = row.filter(|row| row.project_id == project.as_str());
        let Some(row) = row else {
            return Ok(DeleteProfileOutcome::NotFound);
        };
        let operations = profile_operation::Entity::find()
            .filter(profile_operation::Column::ProfileId.eq(id.as_str()))
            .count(&transaction);
        if operations.await? > 0 || has_browser(&transaction, id).await? {
            return Ok(DeleteProfileOutcome::InUse);
        }
        if let Some(pool) = pool_with_profile(&transaction, id).await? {
            return Ok(DeleteProfileOutcome::UsedByPool(pool));
        }
        if let Some(name) = row.live_name
            && let Some(connection) =
                connection_with_profile(&transaction, &row.project_id, &name).await?
        {
            return Ok(DeleteProfileOutcome::UsedByConnection(connection));
        }
        let of_profile = profile_version::Column::ProfileId.eq(id.as_str());
        let blobs: Vec<String> = profile_version::Entity::find()
            .select_only()
            .column(profile_version::Column::Blob)
            .distinct()
            .filter(of_profile.clone())
            .into_tuple()
            .all(&transaction)
            .await?;
        profile_version::Entity::delete_many()
            .filter(of_profile)
            .exec(&transaction)
            .await?;
        profile::Entity::update_many()
            .col_expr(profile::Column::LiveName, Expr::value(None::<String>))
            .col_expr(profile::Column::DeletedAt, Expr::value(to_millis(now)))
            .col_expr(profile::Column::UpdatedAt, Expr::value(to_millis(now)))
            .filter(profile::Column::Id.eq(id.as_str()))
            .exec(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(DeleteProfileOutcome::Deleted(blobs))
    }

    /// Deletes the rows of profiles that were deleted before `before`. Returns how many.
    pub async fn purge_profiles(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let purged = profile::Entity::delete_many()
            .filter(profile::Column::DeletedAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }

    /// Returns a page of the versions of a profile, newest first, with one row more than the limit
    /// if there are more.
    pub async fn list_profile_versions(
        &self,
        id: &ProfileId,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ProfileVersionRow>, StoreError> {
        let rows = profile_version::Entity::find()
            .filter(profile_version::Column::ProfileId.eq(id.as_str()))
            .order_by_desc(profile_version::Column::Number)
            .offset(offset)
            .limit(limit + 1)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Records why an ending browser was not saved.
    pub async fn record_save_failure(
        &self,
        id: &ProfileId,
        browser: &BrowserId,
        reason: &str,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let transaction = self.writer.begin().await?;
        let recorded = profile::Entity::update_many()
            .col_expr(profile::Column::SaveError, Expr::value(reason))
            .col_expr(profile::Column::SaveFailedAt, Expr::value(to_millis(now)))
            .filter(profile::Column::Id.eq(id.as_str()))
            .filter(profile::Column::DeletedAt.is_null())
            .exec(&transaction)
            .await?;
        if recorded.rows_affected == 0 {
            return Ok(());
        }
        let events = record_profile_not_saved(&transaction, id, browser, reason).await?;
        self.commit_with_events(transaction, events).await
    }
}

fn undeleted(project: &ProjectId) -> Select<profile::Entity> {
    profile::Entity::find()
        .filter(profile::Column::ProjectId.eq(project.as_str()))
        .filter(profile::Column::DeletedAt.is_null())
}

/// Returns the number of profiles of a project that are not deleted.
pub(super) async fn count_profiles(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    Ok(undeleted(project).count(db).await?)
}

/// Returns the names of profiles by their ids, without those that do not exist.
pub(super) async fn profile_names<'p>(
    db: &impl ConnectionTrait,
    ids: impl Iterator<Item = &'p ProfileId>,
) -> Result<HashMap<String, Option<String>>, StoreError> {
    let ids: Vec<&str> = ids.map(ProfileId::as_str).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let names: Vec<(String, Option<String>)> = profile::Entity::find()
        .select_only()
        .column(profile::Column::Id)
        .column(profile::Column::Name)
        .filter(profile::Column::Id.is_in(ids))
        .into_tuple()
        .all(db)
        .await?;
    Ok(names.into_iter().collect())
}

/// Locks a profile until the end of the transaction. Returns its row, if it is not deleted.
pub(super) async fn lock_profile(
    transaction: &DatabaseTransaction,
    id: &ProfileId,
) -> Result<Option<profile::Model>, StoreError> {
    // An update without effect locks the row, or the database, unlike a query.
    profile::Entity::update_many()
        .col_expr(
            profile::Column::UpdatedAt,
            Expr::col(profile::Column::UpdatedAt),
        )
        .filter(profile::Column::Id.eq(id.as_str()))
        .exec(transaction)
        .await?;
    let row = profile::Entity::find_by_id(id.as_str())
        .filter(profile::Column::DeletedAt.is_null())
        .one(transaction)
        .await?;
    Ok(row)
}

/// Returns whether a save of the profile is in progress.
pub(super) async fn is_being_saved(
    db: &impl ConnectionTrait,
    id: &ProfileId,
) -> Result<bool, StoreError> {
    let saves = profile_operation::Entity::find()
        .filter(profile_operation::Column::SavingProfileId.eq(id.as_str()))
        .count(db);
    Ok(saves.await? > 0)
}

/// Returns whether a browser has the profile, or gets or will save it.
async fn has_browser(db: &impl ConnectionTrait, id: &ProfileId) -> Result<bool, StoreError> {
    let has_it = Condition::all()
        .add(browser::Column::ProfileId.eq(id.as_str()))
        .add(browsers::is_live());
    let found = browser::Entity::find().filter(has_it).count(db);
    let attachments = profile_attachment::Entity::find()
        .filter(profile_attachment::Column::ProfileId.eq(id.as_str()))
        .count(db);
    Ok(found.await? > 0 || attachments.await? > 0 || write_lock(db, id).await?.is_some())
}

fn natural(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| corrupt("profile", value))
}

fn to_column(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| corrupt("profile", value))
}
