//! The tables of the keys that seal secrets, and of the retired keys of the operator.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, EntityTrait, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect, TransactionTrait,
    sea_query::{Expr, OnConflict},
};

use super::{
    Store, StoreError, corrupt,
    entity::{data_key, retired_key},
    projects::lock_organization,
    to_millis,
};

/// A key that seals secrets, wrapped with a key of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataKeyRow {
    /// The project, or the organization.
    pub scope: String,
    pub version: u32,
    /// The id of the key of the operator.
    pub key_id: String,
    pub wrapped: Vec<u8>,
}

/// The number of data keys that are wrapped with a key of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyUsage {
    pub key_id: String,
    pub data_keys: u64,
}

/// The result of adding a data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddDataKey {
    Added,
    /// The scope has a key of that version.
    Exists,
    /// The key of the operator is retired.
    KeyRetired,
}

/// The result of retiring a key of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetireKeyOutcome {
    Retired,
    /// Has the number of data keys that are wrapped with the key.
    InUse(u64),
}

impl TryFrom<data_key::Model> for DataKeyRow {
    type Error = StoreError;

    fn try_from(row: data_key::Model) -> Result<Self, StoreError> {
        Ok(DataKeyRow {
            version: row
                .version
                .try_into()
                .map_err(|_| corrupt("data key version", row.version))?,
            scope: row.scope,
            key_id: row.key_id,
            wrapped: row.wrapped,
        })
    }
}

impl Store {
    /// Returns the keys of a scope, the oldest first.
    pub async fn data_keys(&self, scope: &str) -> Result<Vec<DataKeyRow>, StoreError> {
        let rows = data_key::Entity::find()
            .filter(data_key::Column::Scope.eq(scope))
            .order_by_asc(data_key::Column::Version)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Adds a data key, unless its scope has one of that version or the key that wraps it is
    /// retired.
    pub async fn add_data_key(
        &self,
        row: &DataKeyRow,
        now: DateTime<Utc>,
    ) -> Result<AddDataKey, StoreError> {
        let transaction = self.writer.begin().await?;
        // Until the commit, the key that wraps is not retired.
        lock_organization(&transaction).await?;
        if is_retired(&transaction, &row.key_id).await? {
            return Ok(AddDataKey::KeyRetired);
        }
        let insert = data_key::Model {
            scope: row.scope.clone(),
            version: row.version.into(),
            key_id: row.key_id.clone(),
            wrapped: row.wrapped.clone(),
            created_at: to_millis(now),
        };
        let key = [data_key::Column::Scope, data_key::Column::Version];
        let inserted = data_key::Entity::insert(data_key::ActiveModel::from(insert).reset_all())
            .on_conflict(OnConflict::columns(key).do_nothing().to_owned())
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(match inserted {
            0 => AddDataKey::Exists,
            _ => AddDataKey::Added,
        })
    }

    /// Replaces the wrapped form of a data key that is wrapped with the key `from`. Returns whether
    /// it was.
    pub async fn rewrap_data_key(&self, from: &str, row: &DataKeyRow) -> Result<bool, StoreError> {
        let changed = data_key::Entity::update_many()
            .col_expr(data_key::Column::KeyId, Expr::value(row.key_id.as_str()))
            .col_expr(
                data_key::Column::Wrapped,
                Expr::value(row.wrapped.as_slice()),
            )
            .filter(data_key::Column::Scope.eq(&row.scope))
            .filter(data_key::Column::Version.eq(i64::from(row.version)))
            .filter(data_key::Column::KeyId.eq(from))
            .exec(&self.writer)
            .await?;
        Ok(changed.rows_affected > 0)
    }

    /// Returns up to `limit` data keys that are not wrapped with the key `primary`, in order, after
    /// the one with that scope and version.
    pub async fn data_keys_not_wrapped_with(
        &self,
        primary: &str,
        after: Option<(&str, u32)>,
        limit: u64,
    ) -> Result<Vec<DataKeyRow>, StoreError> {
        let mut query = data_key::Entity::find().filter(data_key::Column::KeyId.ne(primary));
        if let Some((scope, version)) = after {
            let later_version = Condition::all()
                .add(data_key::Column::Scope.eq(scope))
                .add(data_key::Column::Version.gt(i64::from(version)));
            let later = Condition::any()
                .add(data_key::Column::Scope.gt(scope))
                .add(later_version);
            query = query.filter(later);
        }
        let rows = query
            .order_by_asc(data_key::Column::Scope)
            .order_by_asc(data_key::Column::Version)
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Returns the keys of the operator that data keys are wrapped with, and how many each.
    pub async fn data_key_usage(&self) -> Result<Vec<KeyUsage>, StoreError> {
        let rows: Vec<(String, i64)> = data_key::Entity::find()
            .select_only()
            .column(data_key::Column::KeyId)
            .column_as(data_key::Column::Scope.count(), "data_keys")
            .group_by(data_key::Column::KeyId)
            .order_by_asc(data_key::Column::KeyId)
            .into_tuple()
            .all(&self.db)
            .await?;
        let usage = rows.into_iter().map(|(key_id, count)| {
            let data_keys = count.try_into().map_err(|_| corrupt("count", count))?;
            Ok(KeyUsage { key_id, data_keys })
        });
        usage.collect()
    }

    /// Returns a data key that is wrapped with each key of the operator in use.
    pub async fn data_key_of_each_key(&self) -> Result<Vec<DataKeyRow>, StoreError> {
        let mut found = Vec::new();
        for usage in self.data_key_usage().await? {
            let row = data_key::Entity::find()
                .filter(data_key::Column::KeyId.eq(usage.key_id))
                .order_by_asc(data_key::Column::Scope)
                .one(&self.db)
                .await?;
            found.extend(row.map(TryInto::try_into).transpose()?);
        }
        Ok(found)
    }

    /// Returns whether a key of the operator is retired.
    pub async fn is_retired_key(&self, key_id: &str) -> Result<bool, StoreError> {
        is_retired(&self.db, key_id).await
    }

    /// Returns the ids of the retired keys of the operator.
    pub async fn retired_keys(&self) -> Result<Vec<String>, StoreError> {
        let rows = retired_key::Entity::find()
            .order_by_asc(retired_key::Column::KeyId)
            .all(&self.db)
            .await?;
        Ok(rows.into_iter().map(|row| row.key_id).collect())
    }

    /// Retires a key of the operator that no data key is wrapped with. No data key is ever wrapped
    /// with it again.
    pub async fn retire_key(
        &self,
        key_id: &str,
        now: DateTime<Utc>,
    ) -> Result<RetireKeyOutcome, StoreError> {
        let transaction = self.writer.begin().await?;
        lock_organization(&transaction).await?;
        let in_use = data_key::Entity::find()
            .filter(data_key::Column::KeyId.eq(key_id))
            .count(&transaction)
            .await?;
        if in_use > 0 {
            return Ok(RetireKeyOutcome::InUse(in_use));
        }
        let insert = retired_key::Model {
            key_id: key_id.to_owned(),
            retired_at: to_millis(now),
        };
        retired_key::Entity::insert(retired_key::ActiveModel::from(insert).reset_all())
            .on_conflict(
                OnConflict::column(retired_key::Column::KeyId)
                    .do_nothing()
                    .to_owned(),
            )
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(RetireKeyOutcome::Retired)
    }
}

/// Deletes the data keys of a scope, and with them the secrets that they seal.
pub(super) async fn delete_data_keys(
    db: &impl ConnectionTrait,
    scope: &str,
) -> Result<(), StoreError> {
    data_key::Entity::delete_many()
        .filter(data_key::Column::Scope.eq(scope))
        .exec(db)
        .await?;
    Ok(())
}

async fn is_retired(db: &impl ConnectionTrait, key_id: &str) -> Result<bool, StoreError> {
    let found = retired_key::Entity::find()
        .filter(retired_key::Column::KeyId.eq(key_id))
        .count(db);
    Ok(found.await? > 0)
}
