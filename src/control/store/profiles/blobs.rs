//! Decides which archives are still needed.
//!
//! An archive has a name that is used once: a save names its archive before it stores it, and what
//! no version, save or load needs any more is never needed again. A removal may therefore happen at
//! any later time. A load begins to need an archive that a version has: it names it and then looks
//! whether the version still exists, a removal is recorded and then looks whether something needs
//! the archive. So at least one of them sees the other.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, OnConflict},
};

use super::ProfileSave;
use crate::control::store::{
    ControlProcessId, Store, StoreError,
    entity::{profile_blob_removal, profile_operation, profile_version},
    to_millis,
};

/// The most archives that one statement looks for.
const BATCH: usize = 500;

/// The removal of an archive that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRemoval {
    pub blob: String,
    pub process: Option<ControlProcessId>,
}

impl Store {
    /// Records which archive a save is about to store. Returns false if the save was ended.
    pub async fn set_save_blob(&self, save: &ProfileSave, blob: &str) -> Result<bool, StoreError> {
        let changed = profile_operation::Entity::update_many()
            .col_expr(profile_operation::Column::Blob, Expr::value(blob))
            .filter(profile_operation::Column::Id.eq(&save.id))
            .exec(&self.writer)
            .await?;
        Ok(changed.rows_affected > 0)
    }

    /// Records that an archive is about to be removed by this process. Returns false, and records
    /// nothing, if it is needed, or another process removes it.
    pub async fn begin_blob_removal(
        &self,
        blob: &str,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let row = profile_blob_removal::Model {
            blob: blob.to_owned(),
            process_id: self.process_column(),
            started_at: to_millis(now),
        };
        let insert = profile_blob_removal::ActiveModel::from(row).reset_all();
        let unless_known = OnConflict::column(profile_blob_removal::Column::Blob)
            .do_nothing()
            .to_owned();
        let inserted = profile_blob_removal::Entity::insert(insert)
            .on_conflict(unless_known)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(inserted > 0 && self.confirm_blob_removal(blob).await?)
    }

    /// Takes over a removal of a process that has died. Returns false if the archive is needed, or
    /// the removal is not that of the process any more.
    pub async fn adopt_blob_removal(&self, removal: &BlobRemoval) -> Result<bool, StoreError> {
        let process = removal.process.map(|id| id.0);
        let is_same = match process {
            Some(process) => profile_blob_removal::Column::ProcessId.eq(process),
            None => profile_blob_removal::Column::ProcessId.is_null(),
        };
        let adopted = profile_blob_removal::Entity::update_many()
            .col_expr(
                profile_blob_removal::Column::ProcessId,
                Expr::value(self.process_column()),
            )
            .filter(profile_blob_removal::Column::Blob.eq(&removal.blob))
            .filter(is_same)
            .exec(&self.writer)
            .await?;
        Ok(adopted.rows_affected > 0 && self.confirm_blob_removal(&removal.blob).await?)
    }

    /// Ends a removal, and returns false, if the archive is needed.
    async fn confirm_blob_removal(&self, blob: &str) -> Result<bool, StoreError> {
        let is_needed = self.is_blob_needed(blob).await?;
        if is_needed {
            self.end_blob_removal(blob).await?;
        }
        Ok(!is_needed)
    }

    /// Returns whether a version, a save or a load needs an archive.
    ///
    /// A load begins before it looks for the version, and a save ends when the version is there: so
    /// that neither is overlooked, the versions are read before and after the operations.
    async fn is_blob_needed(&self, blob: &str) -> Result<bool, StoreError> {
        let versions = || {
            profile_version::Entity::find()
                .filter(profile_version::Column::Blob.eq(blob))
                .count(&self.db)
        };
        let operations = profile_operation::Entity::find()
            .filter(profile_operation::Column::Blob.eq(blob))
            .count(&self.db);
        Ok(versions().await? > 0 || operations.await? > 0 || versions().await? > 0)
    }

    /// Records that an archive was removed, or stays.
    pub async fn end_blob_removal(&self, blob: &str) -> Result<(), StoreError> {
        profile_blob_removal::Entity::delete_by_id(blob)
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns the removals that have not ended.
    pub async fn blob_removals(&self) -> Result<Vec<BlobRemoval>, StoreError> {
        let rows = profile_blob_removal::Entity::find().all(&self.db).await?;
        let rows = rows.into_iter().map(|row| BlobRemoval {
            blob: row.blob,
            process: row.process_id.map(ControlProcessId),
        });
        Ok(rows.collect())
    }

    /// Returns those of `blobs` that no version has. A save or a load may need some of them.
    pub async fn blobs_without_version(
        &self,
        blobs: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut unused = Vec::new();
        for batch in blobs.chunks(BATCH) {
            let found: Vec<String> = profile_version::Entity::find()
                .select_only()
                .column(profile_version::Column::Blob)
                .distinct()
                .filter(profile_version::Column::Blob.is_in(batch))
                .into_tuple()
                .all(&self.db)
                .await?;
            let found: HashSet<String> = found.into_iter().collect();
            unused.extend(batch.iter().filter(|blob| !found.contains(*blob)).cloned());
        }
        Ok(unused)
    }

    /// Returns whether there is a version of any profile.
    pub async fn has_profile_versions(&self) -> Result<bool, StoreError> {
        let found = profile_version::Entity::find().one(&self.db).await?;
        Ok(found.is_some())
    }
}
