//! The table of projects.

use chrono::{DateTime, Utc};
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, QueryFilter};

use super::{Store, StoreError, corrupt, entity::project, from_millis, to_millis};
use crate::api::ids::ProjectId;

/// A row of the table of projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    pub id: ProjectId,
    pub name: String,
    pub created_at: DateTime<Utc>,
}

impl TryFrom<project::Model> for ProjectRow {
    type Error = StoreError;

    fn try_from(row: project::Model) -> Result<Self, StoreError> {
        Ok(ProjectRow {
            id: row.id.parse().map_err(|_| corrupt("project id", &row.id))?,
            name: row.name,
            created_at: from_millis(row.created_at)?,
        })
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

    async fn find_default_project(&self) -> Result<Option<ProjectRow>, StoreError> {
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
            status: "active".to_owned(),
            default_marker,
            created_at: to_millis(now),
            updated_at: to_millis(now),
            deleted_at: None,
        };
        let insert = project::ActiveModel::from(row.clone()).reset_all();
        project::Entity::insert(insert)
            .exec_without_returning(&self.db)
            .await?;
        row.try_into()
    }

    /// Finds a project that is not deleted by its id.
    pub async fn find_project(&self, id: &ProjectId) -> Result<Option<ProjectRow>, StoreError> {
        project::Entity::find_by_id(id.to_string())
            .filter(project::Column::DeletedAt.is_null())
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Finds a project that is not deleted by its name.
    pub async fn find_project_named(&self, name: &str) -> Result<Option<ProjectRow>, StoreError> {
        project::Entity::find()
            .filter(project::Column::LiveName.eq(name))
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }
}
