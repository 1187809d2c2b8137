//! Publishes versions of profiles.
//!
//! A save has a row from its beginning to its end, which names the version that it replaces. The
//! version is published by a transaction that removes this row and changes the number of the
//! current version from that one. So of two saves that run at once, whatever the reason, one
//! publishes.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect, TransactionTrait, sea_query::Expr,
};

use super::{ProfileVersionRow, is_being_saved, lock_profile, natural, to_column, write_lock};
use crate::{
    api::{
        ids::{BrowserId, ProfileId},
        profiles::ArchiveContent,
        webhooks::SavedProfile,
    },
    control::store::{
        Store, StoreError, corrupt,
        entity::{profile, profile_operation, profile_version},
        to_millis,
        webhooks::events::{RecordedEvents, record_profile_saved},
    },
};

/// The source of a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveSource<'a> {
    /// A browser that ends, and has the exclusive right to save the profile.
    EndingBrowser(&'a BrowserId),
    /// A browser that goes on. No other one may have the exclusive right to save the profile.
    Browser(&'a BrowserId),
    /// A browser that has only checked whether the profile is logged in. Otherwise like
    /// [`Self::Browser`].
    HealthCheck(&'a BrowserId),
    /// A client. No browser may have that right.
    Upload,
}

impl SaveSource<'_> {
    fn browser(self) -> Option<BrowserId> {
        match self {
            SaveSource::EndingBrowser(browser)
            | SaveSource::Browser(browser)
            | SaveSource::HealthCheck(browser) => Some(browser.clone()),
            SaveSource::Upload => None,
        }
    }
}

/// A save in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileSave {
    pub id: String,
    pub profile_id: ProfileId,
    /// The current version when the save began.
    pub base_version: u64,
    /// The browser that is saved. `None` if a client uploads.
    pub browser: Option<BrowserId>,
    /// Whether the browser has only checked the profile.
    pub is_health_check: bool,
}

/// The result of beginning a save. Except for `Started`, nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum BeginSave {
    Started(ProfileSave),
    NotFound,
    /// Another save is in progress, or a browser has the exclusive right to save.
    InUse,
}

/// The values of a new version.
#[derive(Debug, Clone)]
pub struct NewProfileVersion {
    /// The name of the archive.
    pub blob: String,
    pub size_bytes: u64,
    pub content: ArchiveContent,
    pub chromium_version: Option<String>,
}

/// A version that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedVersion {
    pub number: u64,
    /// The archives of the versions that were deleted: those that were too many, and that of the
    /// health check before.
    pub retired_blobs: Vec<String>,
}

/// The result of restoring a version. Except for `Published`, nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    Published {
        version: Box<ProfileVersionRow>,
        retired_blobs: Vec<String>,
    },
    NotFound,
    VersionNotFound,
    InUse,
}

impl Store {
    /// Begins a save with a new id, which must be published or ended.
    pub async fn begin_profile_save(
        &self,
        id: String,
        profile: &ProfileId,
        source: SaveSource<'_>,
        now: DateTime<Utc>,
    ) -> Result<BeginSave, StoreError> {
        let transaction = self.writer.begin().await?;
        let Some(row) = lock_profile(&transaction, profile).await? else {
            return Ok(BeginSave::NotFound);
        };
        let lock = write_lock(&transaction, profile).await?;
        let may_save = match source {
            SaveSource::EndingBrowser(browser) => lock.as_deref() == Some(browser.as_str()),
            SaveSource::Browser(browser) | SaveSource::HealthCheck(browser) => {
                lock.is_none_or(|lock| lock == browser.as_str())
            }
            SaveSource::Upload => lock.is_none(),
        };
        if !may_save || is_being_saved(&transaction, profile).await? {
            return Ok(BeginSave::InUse);
        }
        let operation = profile_operation::Model {
            id,
            profile_id: profile.to_string(),
            saving_profile_id: Some(profile.to_string()),
            base_version: row.version,
            blob: None,
            process_id: self.process_column(),
            started_at: to_millis(now),
        };
        let insert = profile_operation::ActiveModel::from(operation.clone()).reset_all();
        profile_operation::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(BeginSave::Started(ProfileSave {
            id: operation.id,
            profile_id: profile.clone(),
            base_version: natural(operation.base_version)?,
            browser: source.browser(),
            is_health_check: matches!(source, SaveSource::HealthCheck(_)),
        }))
    }

    /// Publishes the version of a save, which ends with it, and deletes all but the newest `kept`
    /// versions. That of a health check also replaces that of the one before, so that checks do not
    /// displace other versions. Returns `None`, and changes nothing, if the save was ended, or
    /// another version was published since it began.
    pub async fn publish_profile_version(
        &self,
        save: &ProfileSave,
        new: NewProfileVersion,
        kept: u32,
        now: DateTime<Utc>,
    ) -> Result<Option<PublishedVersion>, StoreError> {
        let transaction = self.writer.begin().await?;
        let Some(profile) = lock_profile(&transaction, &save.profile_id).await? else {
            return Ok(None);
        };
        let ended = profile_operation::Entity::delete_by_id(&save.id)
            .exec(&transaction)
            .await?;
        if ended.rows_affected == 0 {
            return Ok(None);
        }
        let row = version_row(save, &new, now)?;
        let is_published = publish(&transaction, &row, save.base_version).await?;
        if !is_published {
            return Ok(None);
        }
        let mut retired_blobs = match save.is_health_check {
            true => retire_health_checks(&transaction, &row).await?,
            false => Vec::new(),
        };
        retired_blobs.extend(retire(&transaction, &row, kept).await?);
        let number = natural(row.number)?;
        let events = match &save.browser {
            Some(browser) => {
                let saved = SavedProfile {
                    session_id: browser.clone(),
                    profile_id: save.profile_id.clone(),
                    version: number,
                    size_bytes: new.size_bytes,
                };
                record_profile_saved(&transaction, &profile.project_id, saved).await?
            }
            None => RecordedEvents::default(),
        };
        self.commit_with_events(transaction, events).await?;
        Ok(Some(PublishedVersion {
            number,
            retired_blobs,
        }))
    }

    /// Finds a version of a profile.
    pub async fn find_profile_version(
        &self,
        profile: &ProfileId,
        number: u64,
    ) -> Result<Option<ProfileVersionRow>, StoreError> {
        let Ok(number) = i64::try_from(number) else {
            return Ok(None);
        };
        let found = profile_version::Entity::find_by_id((profile.to_string(), number))
            .one(&self.db)
            .await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Publishes a new version with the archive of an earlier one.
    pub async fn restore_profile_version(
        &self,
        profile: &ProfileId,
        number: u64,
        kept: u32,
        now: DateTime<Utc>,
    ) -> Result<RestoreOutcome, StoreError> {
        let transaction = self.writer.begin().await?;
        let Some(current) = lock_profile(&transaction, profile).await? else {
            return Ok(RestoreOutcome::NotFound);
        };
        let Ok(number) = i64::try_from(number) else {
            return Ok(RestoreOutcome::VersionNotFound);
        };
        let found = profile_version::Entity::find_by_id((profile.to_string(), number))
            .one(&transaction)
            .await?;
        let Some(restored) = found else {
            return Ok(RestoreOutcome::VersionNotFound);
        };
        let is_in_use = write_lock(&transaction, profile).await?.is_some()
            || is_being_saved(&transaction, profile).await?;
        if is_in_use {
            return Ok(RestoreOutcome::InUse);
        }
        let row = profile_version::Model {
            number: current.version + 1,
            restored_from: Some(number),
            is_health_check: false,
            created_at: to_millis(now),
            ..restored
        };
        // The profile is locked, so that its version has not changed.
        publish(&transaction, &row, natural(current.version)?).await?;
        let retired_blobs = retire(&transaction, &row, kept).await?;
        transaction.commit().await?;
        Ok(RestoreOutcome::Published {
            version: Box::new(row.try_into()?),
            retired_blobs,
        })
    }
}

fn version_row(
    save: &ProfileSave,
    new: &NewProfileVersion,
    now: DateTime<Utc>,
) -> Result<profile_version::Model, StoreError> {
    let receipt = serde_json::to_string(&new.content);
    Ok(profile_version::Model {
        profile_id: save.profile_id.to_string(),
        number: to_column(save.base_version + 1)?,
        blob: new.blob.clone(),
        size_bytes: to_column(new.size_bytes)?,
        receipt: receipt.map_err(|error| corrupt("receipt", error))?,
        chromium_version: new.chromium_version.clone(),
        restored_from: None,
        is_health_check: save.is_health_check,
        created_at: to_millis(now),
    })
}

/// Makes a new version the current one. Returns false if another one than `base` is.
async fn publish(
    transaction: &DatabaseTransaction,
    row: &profile_version::Model,
    base: u64,
) -> Result<bool, StoreError> {
    let changed = profile::Entity::update_many()
        .col_expr(profile::Column::Version, Expr::value(row.number))
        .col_expr(profile::Column::SizeBytes, Expr::value(row.size_bytes))
        .col_expr(profile::Column::UpdatedAt, Expr::value(row.created_at))
        .col_expr(profile::Column::SaveError, Expr::value(None::<String>))
        .col_expr(profile::Column::SaveFailedAt, Expr::value(None::<i64>))
        .filter(profile::Column::Id.eq(&row.profile_id))
        .filter(profile::Column::Version.eq(to_column(base)?))
        .exec(transaction)
        .await?;
    if changed.rows_affected == 0 {
        return Ok(false);
    }
    let insert = profile_version::ActiveModel::from(row.clone()).reset_all();
    profile_version::Entity::insert(insert)
        .exec_without_returning(transaction)
        .await?;
    Ok(true)
}

/// Deletes all but the newest `kept` versions. Returns their archives.
async fn retire(
    transaction: &DatabaseTransaction,
    newest: &profile_version::Model,
    kept: u32,
) -> Result<Vec<String>, StoreError> {
    let kept = usize::try_from(kept.max(1)).unwrap_or(usize::MAX);
    let numbers: Vec<i64> = profile_version::Entity::find()
        .select_only()
        .column(profile_version::Column::Number)
        .filter(profile_version::Column::ProfileId.eq(&newest.profile_id))
        .order_by_desc(profile_version::Column::Number)
        .into_tuple()
        .all(transaction)
        .await?;
    let Some(newest_retired) = numbers.get(kept) else {
        return Ok(Vec::new());
    };
    let is_retired = Condition::all().add(profile_version::Column::Number.lte(*newest_retired));
    delete_versions(transaction, newest, is_retired).await
}

/// Deletes the earlier versions of health checks. Returns their archives.
async fn retire_health_checks(
    transaction: &DatabaseTransaction,
    newest: &profile_version::Model,
) -> Result<Vec<String>, StoreError> {
    let is_retired = Condition::all()
        .add(profile_version::Column::Number.lt(newest.number))
        .add(profile_version::Column::IsHealthCheck.eq(true));
    delete_versions(transaction, newest, is_retired).await
}

/// Deletes versions of the profile of a new one. Returns their archives.
async fn delete_versions(
    transaction: &DatabaseTransaction,
    newest: &profile_version::Model,
    is_retired: Condition,
) -> Result<Vec<String>, StoreError> {
    let is_retired = is_retired.add(profile_version::Column::ProfileId.eq(&newest.profile_id));
    let blobs: Vec<String> = profile_version::Entity::find()
        .select_only()
        .column(profile_version::Column::Blob)
        .distinct()
        .filter(is_retired.clone())
        .into_tuple()
        .all(transaction)
        .await?;
    profile_version::Entity::delete_many()
        .filter(is_retired)
        .exec(transaction)
        .await?;
    Ok(blobs)
}
