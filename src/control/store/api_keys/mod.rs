//! The table of API keys.
//!
//! Keys are changed here, and read in [`queries`]. A deleted key keeps its row until it is purged.
//! A key of a deleted project counts as deleted, too, although its row has no time of deletion.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait,
    ExprTrait, QueryFilter, QuerySelect, QueryTrait, TransactionTrait, UpdateMany, sea_query::Expr,
};

use super::{
    Store, StoreError, corrupt,
    entity::{api_key, project},
    from_millis, to_millis,
};
use crate::api::ids::{KeyId, ProjectId};

mod queries;

pub use queries::{KeyListing, KeyOrder, KeyStatusFilter};

/// A row of the table of API keys. It has the digest of the key, never the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRow {
    pub id: KeyId,
    pub name: String,
    pub public_part: String,
    pub digest: [u8; 32],
    pub project_id: Option<ProjectId>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub created_by: Option<KeyCreator>,
    pub deleted_at: Option<DateTime<Utc>>,
}

/// The key that created another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCreator {
    pub id: KeyId,
    /// The name that it had then.
    pub name: String,
}

/// A row with what other tables know about the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    pub row: ApiKeyRow,
    pub project_name: Option<String>,
}

/// The values of a new row.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub name: String,
    pub public_part: String,
    pub digest: [u8; 32],
    pub project_id: Option<ProjectId>,
    pub expires_at: Option<DateTime<Utc>>,
    pub created_by: Option<KeyCreator>,
}

/// The key that authorized a change of the table.
#[derive(Debug, Clone)]
pub struct CallerKey {
    pub id: KeyId,
    pub public_part: String,
}

/// The result of a change on behalf of a key.
#[derive(Debug)]
pub enum Authorized<T> {
    Done(T),
    /// The key has been deleted since, or has expired. Nothing was changed.
    CallerInvalid,
}

impl TryFrom<api_key::Model> for ApiKeyRow {
    type Error = StoreError;

    fn try_from(row: api_key::Model) -> Result<Self, StoreError> {
        let project_id = match row.project_id {
            Some(id) => Some(id.parse().map_err(|_| corrupt("project id", id))?),
            None => None,
        };
        let created_by = row.created_by.zip(row.created_by_name);
        let created_by = created_by.map(|(id, name)| match id.parse() {
            Ok(id) => Ok(KeyCreator { id, name }),
            Err(_) => Err(corrupt("key id", id)),
        });
        Ok(ApiKeyRow {
            id: row.id.parse().map_err(|_| corrupt("key id", &row.id))?,
            name: row.name,
            public_part: row.public_part,
            digest: row
                .digest
                .try_into()
                .map_err(|_| corrupt("key digest", &row.id))?,
            project_id,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
            expires_at: row.expires_at.map(from_millis).transpose()?,
            created_by: created_by.transpose()?,
            deleted_at: row.deleted_at.map(from_millis).transpose()?,
        })
    }
}

impl Store {
    pub async fn create_api_key(
        &self,
        new: NewApiKey,
        now: DateTime<Utc>,
    ) -> Result<ApiKeyRow, StoreError> {
        let row = insert(&self.writer, new, now).await?;
        self.checkpoint().await;
        Ok(row)
    }

    /// Creates a key on behalf of `caller`.
    pub async fn create_api_key_for(
        &self,
        caller: &CallerKey,
        new: NewApiKey,
        now: DateTime<Utc>,
    ) -> Result<Authorized<ApiKeyRow>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let row = insert(&transaction, new, now).await?;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(row))
    }

    /// Begins a transaction in which the key of `caller` is valid until the end. Returns `None` if
    /// it is not valid now.
    pub(in crate::control::store) async fn begin_as(
        &self,
        caller: &CallerKey,
        now: DateTime<Utc>,
    ) -> Result<Option<DatabaseTransaction>, StoreError> {
        let transaction = self.writer.begin().await?;
        let unexpired = Condition::any()
            .add(api_key::Column::ExpiresAt.is_null())
            .add(api_key::Column::ExpiresAt.gt(to_millis(now)));
        // An update without effect locks the row, unlike a query.
        let locked = api_key::Entity::update_many()
            .col_expr(
                api_key::Column::UpdatedAt,
                Expr::col(api_key::Column::UpdatedAt),
            )
            .filter(api_key::Column::Id.eq(caller.id.to_string()))
            .filter(api_key::Column::PublicPart.eq(&caller.public_part))
            .filter(api_key::Column::DeletedAt.is_null())
            .filter(unexpired)
            .exec(&transaction)
            .await?;
        Ok((locked.rows_affected > 0).then_some(transaction))
    }

    /// Creates `new` in place of the key `id`, which is valid until `end` at most from now on, on
    /// behalf of `caller`. Returns `None` if there is no such key.
    pub async fn rotate_api_key_for(
        &self,
        caller: &CallerKey,
        id: &KeyId,
        end: DateTime<Utc>,
        new: NewApiKey,
        now: DateTime<Utc>,
    ) -> Result<Authorized<Option<ApiKeyRow>>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let expires_at = Expr::col(api_key::Column::ExpiresAt);
        let is_earlier = expires_at.clone().lte(to_millis(end));
        let earlier = Expr::case(is_earlier, expires_at).finally(to_millis(end));
        let change = undeleted(id)
            .col_expr(api_key::Column::ExpiresAt, earlier.into())
            .col_expr(api_key::Column::UpdatedAt, Expr::value(to_millis(now)));
        if change.exec(&transaction).await?.rows_affected == 0 {
            return Ok(Authorized::Done(None));
        }
        let row = insert(&transaction, new, now).await?;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(Some(row)))
    }

    /// Renames a key on behalf of `caller`. Returns whether there is one.
    pub async fn rename_api_key_for(
        &self,
        caller: &CallerKey,
        id: &KeyId,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<Authorized<bool>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let renaming = undeleted(id)
            .col_expr(api_key::Column::Name, Expr::value(name))
            .col_expr(api_key::Column::UpdatedAt, Expr::value(to_millis(now)));
        let renamed = renaming.exec(&transaction).await?.rows_affected > 0;
        transaction.commit().await?;
        Ok(Authorized::Done(renamed))
    }

    /// Deletes a key on behalf of `caller`. Returns whether there was one.
    pub async fn delete_api_key_for(
        &self,
        caller: &CallerKey,
        id: &KeyId,
        now: DateTime<Utc>,
    ) -> Result<Authorized<bool>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let deleted = deletion(id, now).exec(&transaction).await?.rows_affected > 0;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(deleted))
    }

    /// Deletes a key whose deletion was authorized earlier. Succeeds if there is none.
    pub async fn delete_api_key(&self, id: &KeyId, now: DateTime<Utc>) -> Result<(), StoreError> {
        deletion(id, now).exec(&self.writer).await?;
        self.checkpoint().await;
        Ok(())
    }

    /// Removes the rows of keys that were deleted, or whose project was deleted, before `before`.
    /// Returns how many.
    pub async fn purge_api_keys(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let projects = project::Entity::find()
            .select_only()
            .column(project::Column::Id)
            .filter(project::Column::DeletedAt.lt(to_millis(before)))
            .into_query();
        let purged = api_key::Entity::delete_many()
            .filter(
                Condition::any()
                    .add(api_key::Column::DeletedAt.lt(to_millis(before)))
                    .add(api_key::Column::ProjectId.in_subquery(projects)),
            )
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

/// Begins a change of a key that is not deleted.
fn undeleted(id: &KeyId) -> UpdateMany<api_key::Entity> {
    api_key::Entity::update_many()
        .filter(api_key::Column::Id.eq(id.as_str()))
        .filter(api_key::Column::DeletedAt.is_null())
}

fn deletion(id: &KeyId, now: DateTime<Utc>) -> UpdateMany<api_key::Entity> {
    undeleted(id).col_expr(api_key::Column::DeletedAt, Expr::value(to_millis(now)))
}

async fn insert(
    db: &impl ConnectionTrait,
    new: NewApiKey,
    now: DateTime<Utc>,
) -> Result<ApiKeyRow, StoreError> {
    let (created_by, created_by_name) = match new.created_by {
        Some(creator) => (Some(creator.id.to_string()), Some(creator.name)),
        None => (None, None),
    };
    let row = api_key::Model {
        id: KeyId::generate().to_string(),
        name: new.name,
        public_part: new.public_part,
        digest: new.digest.to_vec(),
        project_id: new.project_id.map(|id| id.to_string()),
        created_at: to_millis(now),
        updated_at: to_millis(now),
        expires_at: new.expires_at.map(to_millis),
        created_by,
        created_by_name,
        deleted_at: None,
    };
    let insert = api_key::ActiveModel::from(row.clone()).reset_all();
    api_key::Entity::insert(insert)
        .exec_without_returning(db)
        .await?;
    row.try_into()
}
