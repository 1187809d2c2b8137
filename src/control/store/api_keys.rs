//! The table of API keys.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
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
        let insert = api_key::ActiveModel {
            id: Set(row.id.clone()),
            name: Set(row.name.clone()),
            public_part: Set(row.public_part.clone()),
            digest: Set(row.digest.clone()),
            project_id: Set(row.project_id.clone()),
            created_at: Set(row.created_at),
            updated_at: Set(row.updated_at),
            expires_at: Set(row.expires_at),
        };
        api_key::Entity::insert(insert)
            .exec_without_returning(&self.db)
            .await?;
        row.try_into()
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

    /// Replaces the secret of a key. Returns `None` if there is no such key.
    pub async fn replace_api_key_secret(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
        public_part: &str,
        digest: [u8; 32],
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRow>, StoreError> {
        if self.find_api_key(scope, id).await?.is_none() {
            return Ok(None);
        }
        let change = api_key::ActiveModel {
            id: Set(id.to_string()),
            public_part: Set(public_part.to_owned()),
            digest: Set(digest.to_vec()),
            updated_at: Set(to_millis(now)),
            ..Default::default()
        };
        match change.update(&self.db).await {
            Ok(row) => Ok(Some(row.try_into()?)),
            Err(sea_orm::DbErr::RecordNotUpdated) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a key. Returns whether there was one.
    pub async fn delete_api_key(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<bool, StoreError> {
        let mut delete =
            api_key::Entity::delete_many().filter(api_key::Column::Id.eq(id.to_string()));
        if let Some(project) = scope {
            delete = delete.filter(api_key::Column::ProjectId.eq(project.to_string()));
        }
        Ok(delete.exec(&self.db).await?.rows_affected > 0)
    }
}
