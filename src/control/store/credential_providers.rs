//! The table of credential providers.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, TransactionTrait, sea_query::Expr,
};

use super::{
    Store, StoreError, auth_connections::rename_provider_of_connections, corrupt,
    entity::credential_provider, from_millis, projects::lock_organization, revision_column,
    search::contains, to_millis,
};
use crate::api::{credential_providers::ProviderType, ids::ProviderId};

/// A row of the table of credential providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    pub id: ProviderId,
    pub name: String,
    pub provider_type: ProviderType,
    pub base_url: String,
    pub enabled: bool,
    /// Providers with a lower number are asked first.
    pub priority: u32,
    pub cache_ttl_seconds: u32,
    /// Grows with each change.
    pub revision: u64,
    /// The revision in which the token was sealed.
    pub token_revision: u64,
    pub token_key_version: u32,
    pub sealed_token: Vec<u8>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A page of the list of credential providers, with its filter.
#[derive(Debug, Clone, Default)]
pub struct ProviderListing {
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// The result of creating a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateProviderOutcome {
    Created,
    /// The limit is reached.
    LimitReached,
}

impl TryFrom<credential_provider::Model> for ProviderRow {
    type Error = StoreError;

    fn try_from(row: credential_provider::Model) -> Result<Self, StoreError> {
        let natural = |number: i64| u64::try_from(number).map_err(|_| corrupt("revision", number));
        let small = |number: i64| u32::try_from(number).map_err(|_| corrupt("number", number));
        Ok(ProviderRow {
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("provider id", &row.id))?,
            name: row.name,
            provider_type: ProviderType::parse(&row.kind)
                .ok_or_else(|| corrupt("provider type", &row.kind))?,
            base_url: row.base_url,
            enabled: row.enabled,
            priority: small(row.priority)?,
            cache_ttl_seconds: small(row.cache_ttl_seconds)?,
            revision: natural(row.revision)?,
            token_revision: natural(row.token_revision)?,
            token_key_version: small(row.token_key_version)?,
            sealed_token: row.sealed_token,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
        })
    }
}

impl Store {
    /// Creates a provider, if there are fewer than `limit`. The name must be unique.
    pub async fn create_provider(
        &self,
        row: &ProviderRow,
        limit: u64,
    ) -> Result<CreateProviderOutcome, StoreError> {
        let insert = credential_provider::Model {
            id: row.id.to_string(),
            name: row.name.clone(),
            kind: row.provider_type.as_str().to_owned(),
            base_url: row.base_url.clone(),
            enabled: row.enabled,
            priority: row.priority.into(),
            cache_ttl_seconds: row.cache_ttl_seconds.into(),
            revision: revision_column(row.revision)?,
            token_revision: revision_column(row.token_revision)?,
            token_key_version: row.token_key_version.into(),
            sealed_token: row.sealed_token.clone(),
            created_at: to_millis(row.created_at),
            updated_at: to_millis(row.updated_at),
        };
        let transaction = self.writer.begin().await?;
        // Until the commit, no other provider is created.
        lock_organization(&transaction).await?;
        if credential_provider::Entity::find()
            .count(&transaction)
            .await?
            >= limit
        {
            return Ok(CreateProviderOutcome::LimitReached);
        }
        let insert = credential_provider::ActiveModel::from(insert).reset_all();
        credential_provider::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(CreateProviderOutcome::Created)
    }

    /// Finds a provider by its id.
    pub async fn find_provider(&self, id: &ProviderId) -> Result<Option<ProviderRow>, StoreError> {
        let found = credential_provider::Entity::find_by_id(id.as_str());
        let found = found.one(&self.db).await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Finds a provider by its name.
    pub async fn find_provider_named(&self, name: &str) -> Result<Option<ProviderRow>, StoreError> {
        let found = credential_provider::Entity::find()
            .filter(credential_provider::Column::Name.eq(name))
            .one(&self.db);
        found.await?.map(TryInto::try_into).transpose()
    }

    /// Lists providers in the order in which they are asked, with one row more than the limit if
    /// there are more.
    pub async fn list_providers(
        &self,
        listing: &ProviderListing,
    ) -> Result<Vec<ProviderRow>, StoreError> {
        let mut query = credential_provider::Entity::find();
        if let Some(text) = &listing.query {
            let columns = [
                credential_provider::Column::Id,
                credential_provider::Column::Name,
            ];
            query = query.filter(contains(text, &columns));
        }
        let rows = query
            .order_by_asc(credential_provider::Column::Priority)
            .order_by_asc(credential_provider::Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Replaces the changeable columns of a provider that has the revision of `before` by those of
    /// `row`. Returns whether there is one.
    pub async fn update_provider(
        &self,
        before: &ProviderRow,
        row: &ProviderRow,
    ) -> Result<bool, StoreError> {
        use credential_provider::Column;
        let transaction = self.writer.begin().await?;
        let updated = credential_provider::Entity::update_many()
            .col_expr(Column::Name, Expr::value(row.name.as_str()))
            .col_expr(Column::BaseUrl, Expr::value(row.base_url.as_str()))
            .col_expr(Column::Enabled, Expr::value(row.enabled))
            .col_expr(Column::Priority, Expr::value(i64::from(row.priority)))
            .col_expr(
                Column::CacheTtlSeconds,
                Expr::value(i64::from(row.cache_ttl_seconds)),
            )
            .col_expr(
                Column::Revision,
                Expr::value(revision_column(row.revision)?),
            )
            .col_expr(
                Column::TokenRevision,
                Expr::value(revision_column(row.token_revision)?),
            )
            .col_expr(
                Column::TokenKeyVersion,
                Expr::value(i64::from(row.token_key_version)),
            )
            .col_expr(
                Column::SealedToken,
                Expr::value(row.sealed_token.as_slice()),
            )
            .col_expr(Column::UpdatedAt, Expr::value(to_millis(row.updated_at)))
            .filter(Column::Id.eq(row.id.as_str()))
            .filter(Column::Revision.eq(revision_column(before.revision)?))
            .exec(&transaction)
            .await?;
        if updated.rows_affected == 0 {
            return Ok(false);
        }
        if row.name != before.name {
            let names = (before.name.as_str(), row.name.as_str());
            rename_provider_of_connections(&transaction, names).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes a provider. Returns whether there was one.
    pub async fn delete_provider(&self, id: &ProviderId) -> Result<bool, StoreError> {
        let deleted = credential_provider::Entity::delete_by_id(id.as_str());
        Ok(deleted.exec(&self.writer).await?.rows_affected > 0)
    }
}
