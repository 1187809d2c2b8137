//! The table of API keys.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, Condition, ConnectionTrait,
    DatabaseTransaction, DeleteMany, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    TransactionTrait, sea_query::Expr,
};

use super::{Store, StoreError, corrupt, entity::api_key, from_millis, to_millis};
use crate::api::ids::{KeyId, ProjectId};

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
}

/// The values of a new row.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub name: String,
    pub public_part: String,
    pub digest: [u8; 32],
    pub project_id: Option<ProjectId>,
    pub expires_at: Option<DateTime<Utc>>,
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
    /// The key has been deleted or rotated since, or has expired. Nothing was changed.
    CallerInvalid,
}

impl TryFrom<api_key::Model> for ApiKeyRow {
    type Error = StoreError;

    fn try_from(row: api_key::Model) -> Result<Self, StoreError> {
        let project_id = match row.project_id {
            Some(id) => Some(id.parse().map_err(|_| corrupt("project id", id))?),
            None => None,
        };
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
        })
    }
}

impl Store {
    pub async fn create_api_key(
        &self,
        new: NewApiKey,
        now: DateTime<Utc>,
    ) -> Result<ApiKeyRow, StoreError> {
        let row = insert(&self.db, new, now).await?;
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
    async fn begin_as(
        &self,
        caller: &CallerKey,
        now: DateTime<Utc>,
    ) -> Result<Option<DatabaseTransaction>, StoreError> {
        let transaction = self.db.begin().await?;
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
            .filter(unexpired)
            .exec(&transaction)
            .await?;
        Ok((locked.rows_affected > 0).then_some(transaction))
    }

    pub async fn find_api_key_by_public_part(
        &self,
        public_part: &str,
    ) -> Result<Option<ApiKeyRow>, StoreError> {
        api_key::Entity::find()
            .filter(api_key::Column::PublicPart.eq(public_part))
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Finds the key `id`. With a `scope`, only if it belongs to that project.
    pub async fn find_api_key(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<Option<ApiKeyRow>, StoreError> {
        let mut query = api_key::Entity::find_by_id(id.to_string());
        if let Some(project) = scope {
            query = query.filter(api_key::Column::ProjectId.eq(project.to_string()));
        }
        query
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Lists keys, newest first, with one row more than `limit` if there are more.
    pub async fn list_api_keys(
        &self,
        scope: Option<&ProjectId>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ApiKeyRow>, StoreError> {
        let mut query = api_key::Entity::find();
        if let Some(project) = scope {
            query = query.filter(api_key::Column::ProjectId.eq(project.to_string()));
        }
        query
            .order_by_desc(api_key::Column::Id)
            .offset(offset)
            .limit(limit + 1)
            .all(&self.db)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    /// Replaces the secret of a key on behalf of `caller`. Returns `None` if there is no such key.
    pub async fn replace_api_key_secret(
        &self,
        caller: &CallerKey,
        id: &KeyId,
        public_part: &str,
        digest: [u8; 32],
        now: DateTime<Utc>,
    ) -> Result<Authorized<Option<ApiKeyRow>>, StoreError> {
        let Some(transaction) = self.begin_as(caller, now).await? else {
            return Ok(Authorized::CallerInvalid);
        };
        let change = api_key::ActiveModel {
            id: Set(id.to_string()),
            public_part: Set(public_part.to_owned()),
            digest: Set(digest.to_vec()),
            updated_at: Set(to_millis(now)),
            ..Default::default()
        };
        let row = match change.update(&transaction).await {
            Ok(row) => Some(row.try_into()?),
            Err(sea_orm::DbErr::RecordNotUpdated) => None,
            Err(error) => return Err(error.into()),
        };
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(row))
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
        let deleted = deletion(id).exec(&transaction).await?.rows_affected > 0;
        transaction.commit().await?;
        self.checkpoint().await;
        Ok(Authorized::Done(deleted))
    }

    /// Deletes a key whose deletion was authorized earlier. Succeeds if there is none.
    pub async fn delete_api_key(&self, id: &KeyId) -> Result<(), StoreError> {
        deletion(id).exec(&self.db).await?;
        self.checkpoint().await;
        Ok(())
    }
}

fn deletion(id: &KeyId) -> DeleteMany<api_key::Entity> {
    api_key::Entity::delete_many().filter(api_key::Column::Id.eq(id.to_string()))
}

async fn insert(
    db: &impl ConnectionTrait,
    new: NewApiKey,
    now: DateTime<Utc>,
) -> Result<ApiKeyRow, StoreError> {
    let row = api_key::Model {
        id: KeyId::generate().to_string(),
        name: new.name,
        public_part: new.public_part,
        digest: new.digest.to_vec(),
        project_id: new.project_id.map(|id| id.to_string()),
        created_at: to_millis(now),
        updated_at: to_millis(now),
        expires_at: new.expires_at.map(to_millis),
    };
    let insert = api_key::ActiveModel::from(row.clone()).reset_all();
    api_key::Entity::insert(insert)
        .exec_without_returning(db)
        .await?;
    row.try_into()
}
