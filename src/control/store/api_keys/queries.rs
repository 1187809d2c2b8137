//! Reads the rows of API keys.

use std::collections::HashMap;

use sea_orm::{
    ColumnTrait, Condition, EntityTrait, ExprTrait, Order, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select,
    sea_query::{Expr, SelectStatement},
};

use super::{ApiKeyRecord, ApiKeyRow};
use crate::{
    api::ids::{KeyId, ProjectId},
    control::store::{
        Store, StoreError,
        entity::{api_key, project},
        from_millis,
        search::contains,
    },
};

/// A page of the list of keys, with its filters and its order.
#[derive(Debug, Clone)]
pub struct KeyListing {
    pub status: KeyStatusFilter,
    pub name: Option<String>,
    /// Searched in the id and the names of the key, of its creator and of its project.
    pub query: Option<String>,
    /// Searched in the public part, as an alternative to `query`.
    pub public_part: Option<String>,
    pub order: KeyOrder,
    pub is_descending: bool,
    pub offset: u64,
    pub limit: u64,
}

/// Selects keys by whether they are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStatusFilter {
    Active,
    Deleted,
    All,
}

/// The column that keys are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    CreatedAt,
    Name,
    /// Keys that do not expire count as the last to expire.
    ExpiresAt,
}

impl Store {
    /// Finds the key that is not deleted and has that public part. Its project may be deleted.
    pub async fn find_api_key_by_public_part(
        &self,
        public_part: &str,
    ) -> Result<Option<ApiKeyRow>, StoreError> {
        api_key::Entity::find()
            .filter(api_key::Column::PublicPart.eq(public_part))
            .filter(api_key::Column::DeletedAt.is_null())
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Finds the key `id` if it is not deleted. With a `scope`, only if it belongs to that project.
    pub async fn find_api_key(
        &self,
        scope: Option<&ProjectId>,
        id: &KeyId,
    ) -> Result<Option<ApiKeyRecord>, StoreError> {
        let row = within(scope)
            .filter(api_key::Column::Id.eq(id.as_str()))
            .filter(status_condition(KeyStatusFilter::Active))
            .one(&self.db)
            .await?;
        let records = self.with_projects(row.into_iter().collect()).await?;
        Ok(records.into_iter().next())
    }

    /// Lists keys, with one more than the limit if there are more.
    pub async fn list_api_keys(
        &self,
        scope: Option<&ProjectId>,
        listing: &KeyListing,
    ) -> Result<Vec<ApiKeyRecord>, StoreError> {
        let mut query = within(scope).filter(status_condition(listing.status));
        if let Some(name) = &listing.name {
            query = query.filter(api_key::Column::Name.eq(name));
        }
        if let Some(condition) = search_condition(listing) {
            query = query.filter(condition);
        }
        let order = match listing.is_descending {
            true => Order::Desc,
            false => Order::Asc,
        };
        let query = match listing.order {
            KeyOrder::CreatedAt => query.order_by(api_key::Column::CreatedAt, order.clone()),
            KeyOrder::Name => query.order_by(api_key::Column::Name, order.clone()),
            // Databases differ in where they sort NULL.
            KeyOrder::ExpiresAt => query
                .order_by(
                    Expr::col(api_key::Column::ExpiresAt).is_null(),
                    order.clone(),
                )
                .order_by(api_key::Column::ExpiresAt, order.clone()),
        };
        let rows = query
            .order_by(api_key::Column::Id, order)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        self.with_projects(rows).await
    }

    /// Adds the projects of keys: their name, and the time when the keys were deleted with them.
    async fn with_projects(
        &self,
        rows: Vec<api_key::Model>,
    ) -> Result<Vec<ApiKeyRecord>, StoreError> {
        let ids: Vec<String> = rows
            .iter()
            .filter_map(|row| row.project_id.clone())
            .collect();
        let mut projects: HashMap<String, project::Model> = HashMap::new();
        if !ids.is_empty() {
            let found = project::Entity::find().filter(project::Column::Id.is_in(ids));
            let found = found.all(&self.db).await?.into_iter();
            projects.extend(found.map(|row| (row.id.clone(), row)));
        }
        rows.into_iter()
            .map(|row| {
                let project = row.project_id.as_ref().and_then(|id| projects.get(id));
                let deleted_with_project = project.and_then(|project| project.deleted_at);
                let mut row = ApiKeyRow::try_from(row)?;
                if row.deleted_at.is_none() {
                    row.deleted_at = deleted_with_project.map(from_millis).transpose()?;
                }
                Ok(ApiKeyRecord {
                    row,
                    project_name: project.map(|project| project.name.clone()),
                })
            })
            .collect()
    }
}

fn within(scope: Option<&ProjectId>) -> Select<api_key::Entity> {
    let query = api_key::Entity::find();
    match scope {
        Some(project) => query.filter(api_key::Column::ProjectId.eq(project.as_str())),
        None => query,
    }
}

fn status_condition(status: KeyStatusFilter) -> Condition {
    let deleted_projects = project_ids(project::Column::DeletedAt.is_not_null());
    let is_deleted = Condition::any()
        .add(api_key::Column::DeletedAt.is_not_null())
        .add(is_of(deleted_projects));
    match status {
        KeyStatusFilter::Active => is_deleted.not(),
        KeyStatusFilter::Deleted => is_deleted,
        KeyStatusFilter::All => Condition::all(),
    }
}

fn search_condition(listing: &KeyListing) -> Option<Condition> {
    let text = listing.query.as_ref()?;
    let columns = [
        api_key::Column::Id,
        api_key::Column::Name,
        api_key::Column::CreatedByName,
    ];
    let projects = contains(text, &[project::Column::Name]);
    let mut any = contains(text, &columns).add(is_of(project_ids(projects)));
    if let Some(part) = &listing.public_part {
        any = any.add(contains(part, &[api_key::Column::PublicPart]));
    }
    Some(any)
}

fn project_ids(condition: impl sea_orm::sea_query::IntoCondition) -> SelectStatement {
    project::Entity::find()
        .select_only()
        .column(project::Column::Id)
        .filter(condition)
        .into_query()
}

/// Returns the condition that a key belongs to one of `projects`. Never NULL, so that its negation
/// is true for keys of no project.
fn is_of(projects: SelectStatement) -> Condition {
    Condition::all()
        .add(api_key::Column::ProjectId.is_not_null())
        .add(api_key::Column::ProjectId.in_subquery(projects))
}
