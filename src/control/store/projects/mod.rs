//! The table of projects.
//!
//! An active project always has the default marker. A transaction that changes which projects are
//! active locks the organization first, so that two of them run one after the other.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect, Select, TransactionTrait, sea_query::Expr,
};

use super::{
    Store, StoreError,
    auth_connections::count_connections_of,
    browsers, corrupt,
    credentials::count_credentials,
    data_keys::delete_data_keys,
    entity::{organization, project},
    from_millis, pools,
    profiles::count_profiles,
    search::contains,
    to_millis,
};
use crate::api::{ids::ProjectId, projects::ProjectStatus};

#[cfg(test)]
mod tests;

pub(super) const ACTIVE: &str = "active";
const ARCHIVED: &str = "archived";

/// A row of the table of projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    pub id: ProjectId,
    pub name: String,
    pub status: ProjectStatus,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A page of the list of projects, with its filters.
#[derive(Debug, Clone, Default)]
pub struct ProjectListing {
    /// The only project to list.
    pub scope: Option<ProjectId>,
    pub name: Option<String>,
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// The columns to change. `None` leaves a column as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectChange {
    pub name: Option<String>,
    pub status: Option<ProjectStatus>,
}

/// The result of changing or deleting a project. Except for `Done`, nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum ProjectOutcome<T> {
    Done(T),
    NotFound,
    /// The project has browsers, pools, profiles, credentials or auth connections.
    NotEmpty,
    /// No other project is active.
    LastActive,
}

impl TryFrom<project::Model> for ProjectRow {
    type Error = StoreError;

    fn try_from(row: project::Model) -> Result<Self, StoreError> {
        Ok(ProjectRow {
            id: row.id.parse().map_err(|_| corrupt("project id", &row.id))?,
            name: row.name,
            status: match row.status.as_str() {
                ACTIVE => ProjectStatus::Active,
                ARCHIVED => ProjectStatus::Archived,
                other => return Err(corrupt("project status", other)),
            },
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
        })
    }
}

fn status_text(status: ProjectStatus) -> &'static str {
    match status {
        ProjectStatus::Active => ACTIVE,
        ProjectStatus::Archived => ARCHIVED,
    }
}

impl Store {
    /// Returns the default project, creating it with `name` if it does not exist. Another process
    /// may do the same at the same time.
    pub async fn default_project(
        &self,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<ProjectRow, StoreError> {
        if let Some(row) = self.find_default_project().await? {
            return Ok(row);
        }
        let inserted = self.insert_project(name, Some(1), now).await;
        match (inserted, self.find_default_project().await?) {
            (_, Some(row)) => Ok(row),
            (Err(error), None) => Err(error),
            (Ok(row), None) => Err(corrupt("default project", row.id)),
        }
    }

    /// Returns the default project, which [`Self::default_project`] created.
    pub async fn find_default_project(&self) -> Result<Option<ProjectRow>, StoreError> {
        project::Entity::find()
            .filter(project::Column::DefaultMarker.eq(1))
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Creates a project. The name must be unique among the projects that are not deleted.
    pub async fn create_project(
        &self,
        name: &str,
        now: DateTime<Utc>,
    ) -> Result<ProjectRow, StoreError> {
        self.insert_project(name, None, now).await
    }

    async fn insert_project(
        &self,
        name: &str,
        default_marker: Option<i32>,
        now: DateTime<Utc>,
    ) -> Result<ProjectRow, StoreError> {
        let row = project::Model {
            id: ProjectId::generate().to_string(),
            name: name.to_owned(),
            live_name: Some(name.to_owned()),
            status: ACTIVE.to_owned(),
            default_marker,
            created_at: to_millis(now),
            updated_at: to_millis(now),
            deleted_at: None,
            max_concurrent_sessions: None,
            max_concurrent_invocations: None,
        };
        let insert = project::ActiveModel::from(row.clone()).reset_all();
        project::Entity::insert(insert)
            .exec_without_returning(&self.writer)
            .await?;
        row.try_into()
    }

    /// Finds a project that is not deleted by its id.
    pub async fn find_project(&self, id: &ProjectId) -> Result<Option<ProjectRow>, StoreError> {
        find(&self.db, id).await?.map(TryInto::try_into).transpose()
    }

    /// Finds a project that is not deleted by its name.
    pub async fn find_project_named(&self, name: &str) -> Result<Option<ProjectRow>, StoreError> {
        undeleted()
            .filter(project::Column::LiveName.eq(name))
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Returns whether the project is active.
    pub async fn is_project_active(&self, id: &ProjectId) -> Result<bool, StoreError> {
        let found = self.find_project(id).await?;
        Ok(found.is_some_and(|row| row.status == ProjectStatus::Active))
    }

    /// Lists projects that are not deleted, newest first, with one row more than the limit if there
    /// are more.
    pub async fn list_projects(
        &self,
        listing: &ProjectListing,
    ) -> Result<Vec<ProjectRow>, StoreError> {
        let mut query = undeleted();
        if let Some(id) = &listing.scope {
            query = query.filter(project::Column::Id.eq(id.as_str()));
        }
        if let Some(name) = &listing.name {
            query = query.filter(project::Column::LiveName.eq(name));
        }
        if let Some(text) = &listing.query {
            let columns = [project::Column::Id, project::Column::Name];
            query = query.filter(contains(text, &columns));
        }
        query
            .order_by_desc(project::Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    /// Changes a project. If it was the default project and is archived, another one becomes it.
    pub async fn change_project(
        &self,
        id: &ProjectId,
        change: &ProjectChange,
        now: DateTime<Utc>,
    ) -> Result<ProjectOutcome<ProjectRow>, StoreError> {
        let transaction = self.writer.begin().await?;
        lock_organization(&transaction).await?;
        let Some(before) = find(&transaction, id).await? else {
            return Ok(ProjectOutcome::NotFound);
        };
        let is_archived = change.status == Some(ProjectStatus::Archived);
        if is_archived && before.status == ACTIVE && !pass_on_default(&transaction, &before).await?
        {
            return Ok(ProjectOutcome::LastActive);
        }
        let mut update = project::Entity::update_many()
            .col_expr(project::Column::UpdatedAt, Expr::value(to_millis(now)))
            .filter(project::Column::Id.eq(id.as_str()));
        if let Some(name) = &change.name {
            update = update
                .col_expr(project::Column::Name, Expr::value(name))
                .col_expr(project::Column::LiveName, Expr::value(name));
        }
        if let Some(status) = change.status {
            update = update.col_expr(project::Column::Status, Expr::value(status_text(status)));
        }
        update.exec(&transaction).await?;
        let changed = find(&transaction, id).await?;
        transaction.commit().await?;
        match changed {
            Some(row) => Ok(ProjectOutcome::Done(row.try_into()?)),
            None => Ok(ProjectOutcome::NotFound),
        }
    }

    /// Deletes a project that has no browsers, pools, profiles, credentials and auth connections,
    /// with its data keys: its row remains, its name becomes free. If it was the default project,
    /// another one becomes it.
    pub async fn delete_project(
        &self,
        id: &ProjectId,
        now: DateTime<Utc>,
    ) -> Result<ProjectOutcome<()>, StoreError> {
        let transaction = self.writer.begin().await?;
        lock_organization(&transaction).await?;
        lock_project(&transaction, id).await?;
        let Some(row) = find(&transaction, id).await? else {
            return Ok(ProjectOutcome::NotFound);
        };
        let is_empty = browsers::count_live(&transaction, id).await? == 0
            && pools::count(&transaction, id).await? == 0
            && count_profiles(&transaction, id).await? == 0
            && count_credentials(&transaction, id).await? == 0
            && count_connections_of(&transaction, id).await? == 0;
        if !is_empty {
            return Ok(ProjectOutcome::NotEmpty);
        }
        if row.status == ACTIVE && !pass_on_default(&transaction, &row).await? {
            return Ok(ProjectOutcome::LastActive);
        }
        delete_data_keys(&transaction, id.as_str()).await?;
        project::Entity::update_many()
            .col_expr(project::Column::LiveName, Expr::value(None::<String>))
            .col_expr(project::Column::DeletedAt, Expr::value(to_millis(now)))
            .col_expr(project::Column::UpdatedAt, Expr::value(to_millis(now)))
            .filter(project::Column::Id.eq(id.as_str()))
            .exec(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(ProjectOutcome::Done(()))
    }
}

fn undeleted() -> Select<project::Entity> {
    project::Entity::find().filter(project::Column::DeletedAt.is_null())
}

async fn find(
    db: &impl ConnectionTrait,
    id: &ProjectId,
) -> Result<Option<project::Model>, StoreError> {
    let query = undeleted().filter(project::Column::Id.eq(id.as_str()));
    Ok(query.one(db).await?)
}

/// Locks the organization until the end of the transaction, whose first statement this must be.
pub(super) async fn lock_organization(transaction: &DatabaseTransaction) -> Result<(), StoreError> {
    // An update without effect locks the row, or the database, unlike a query.
    organization::Entity::update_many()
        .col_expr(
            organization::Column::Id,
            Expr::col(organization::Column::Id),
        )
        .exec(transaction)
        .await?;
    Ok(())
}

/// Locks a project until the end of the transaction. Returns its row, if the project is active.
pub(super) async fn lock_active_project(
    transaction: &DatabaseTransaction,
    id: &ProjectId,
) -> Result<Option<project::Model>, StoreError> {
    lock_project(transaction, id).await?;
    let row = find(transaction, id).await?;
    Ok(row.filter(|row| row.status == ACTIVE))
}

async fn lock_project(transaction: &DatabaseTransaction, id: &ProjectId) -> Result<(), StoreError> {
    project::Entity::update_many()
        .col_expr(
            project::Column::UpdatedAt,
            Expr::col(project::Column::UpdatedAt),
        )
        .filter(project::Column::Id.eq(id.as_str()))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Prepares for `row` not to be active any more: if it is the default project, the oldest other
/// active project becomes it. Returns false if there is none.
async fn pass_on_default(
    transaction: &DatabaseTransaction,
    row: &project::Model,
) -> Result<bool, StoreError> {
    let successor = undeleted()
        .filter(project::Column::Status.eq(ACTIVE))
        .filter(project::Column::Id.ne(&row.id))
        .order_by_asc(project::Column::Id)
        .one(transaction)
        .await?;
    let Some(successor) = successor else {
        return Ok(false);
    };
    if row.default_marker.is_some() {
        // The marker is unique, so the old one goes first.
        for (id, marker) in [(&row.id, None), (&successor.id, row.default_marker)] {
            project::Entity::update_many()
                .col_expr(project::Column::DefaultMarker, Expr::value(marker))
                .filter(project::Column::Id.eq(id))
                .exec(transaction)
                .await?;
        }
    }
    Ok(true)
}
