//! The limits of projects, and the table of the organization.

use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, PaginatorTrait, QueryFilter, sea_query::Expr,
};

use super::{
    Store, StoreError, browsers, corrupt,
    entity::{browser, organization, project},
    pools,
};
use crate::api::{
    ids::{OrganizationId, ProjectId},
    limits::{NewLimit, UpdateProjectLimits},
};

#[cfg(test)]
mod tests;

/// The limits of a project. `None` where that of the organization applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectLimitsRow {
    pub max_concurrent_sessions: Option<u32>,
    pub max_concurrent_invocations: Option<u32>,
}

/// The row of the organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrganizationRow {
    pub id: OrganizationId,
    /// The limit of projects that have none of their own.
    pub default_project_max_concurrent_sessions: Option<u32>,
}

impl TryFrom<project::Model> for ProjectLimitsRow {
    type Error = StoreError;

    fn try_from(row: project::Model) -> Result<Self, StoreError> {
        Ok(ProjectLimitsRow {
            max_concurrent_sessions: from_column(row.max_concurrent_sessions)?,
            max_concurrent_invocations: from_column(row.max_concurrent_invocations)?,
        })
    }
}

impl Store {
    /// Returns the limits of a project that is not deleted.
    pub async fn project_limits(
        &self,
        id: &ProjectId,
    ) -> Result<Option<ProjectLimitsRow>, StoreError> {
        project::Entity::find_by_id(id.as_str())
            .filter(project::Column::DeletedAt.is_null())
            .one(&self.db)
            .await?
            .map(TryInto::try_into)
            .transpose()
    }

    /// Changes the limits of a project that is not deleted. Browsers beyond a new limit stay.
    pub async fn change_project_limits(
        &self,
        id: &ProjectId,
        change: &UpdateProjectLimits,
    ) -> Result<Option<ProjectLimitsRow>, StoreError> {
        // Without effect, because a statement sets at least one column.
        let updated_at = Expr::col(project::Column::UpdatedAt);
        let mut update = project::Entity::update_many()
            .col_expr(project::Column::UpdatedAt, updated_at)
            .filter(project::Column::Id.eq(id.as_str()));
        let columns = [
            (
                project::Column::MaxConcurrentSessions,
                change.max_concurrent_sessions,
            ),
            (
                project::Column::MaxConcurrentInvocations,
                change.max_concurrent_invocations,
            ),
        ];
        for (column, limit) in columns {
            if let Some(limit) = limit {
                update = update.col_expr(column, Expr::value(to_column(limit)?));
            }
        }
        update.exec(&self.writer).await?;
        self.project_limits(id).await
    }

    /// Returns the row of the organization.
    pub async fn organization(&self) -> Result<OrganizationRow, StoreError> {
        let row = organization_row(&self.db).await?;
        Ok(OrganizationRow {
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("organization id", &row.id))?,
            default_project_max_concurrent_sessions: from_column(
                row.default_project_max_concurrent_sessions,
            )?,
        })
    }

    /// Sets the limit of projects that have none of their own.
    pub async fn set_default_project_limit(&self, limit: NewLimit) -> Result<(), StoreError> {
        organization::Entity::update_many()
            .col_expr(
                organization::Column::DefaultProjectMaxConcurrentSessions,
                Expr::value(to_column(limit)?),
            )
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns the number of browsers of all projects that start or are active.
    pub async fn count_live_browsers(&self) -> Result<u64, StoreError> {
        let live = browser::Entity::find().filter(browsers::is_live());
        Ok(live.count(&self.db).await?)
    }
}

/// Returns the number of browsers that a project has or that its pools may have: those that start
/// or are active, and the size of each pool beyond its leased ones.
pub(super) async fn sessions_in_use(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    // Of one moment: a lease between two counts would be missing in both.
    let live = browsers::count_live_by_pool(db, project).await?;
    let sizes = pools::sizes(db, project).await?;
    let unleased = sizes.into_iter().map(|(pool, size)| {
        let leased = live.get(&Some(pool)).copied().unwrap_or_default();
        size.saturating_sub(leased)
    });
    Ok(live.values().sum::<u64>() + unleased.sum::<u64>())
}

/// Returns the limit of browsers at once that applies to a project, if any.
pub(super) async fn session_limit(
    db: &impl ConnectionTrait,
    project: &project::Model,
) -> Result<Option<u32>, StoreError> {
    let limit = match project.max_concurrent_sessions {
        Some(own) => Some(own),
        None => {
            let organization = organization_row(db).await?;
            organization.default_project_max_concurrent_sessions
        }
    };
    from_column(limit)
}

async fn organization_row(db: &impl ConnectionTrait) -> Result<organization::Model, StoreError> {
    let row = organization::Entity::find().one(db).await?;
    row.ok_or_else(|| corrupt("organization", "no row"))
}

fn to_column(limit: NewLimit) -> Result<Option<i32>, StoreError> {
    let column = limit.value().map(i32::try_from).transpose();
    column.map_err(|error| corrupt("limit", error))
}

fn from_column(limit: Option<i32>) -> Result<Option<u32>, StoreError> {
    let limit = limit.map(|limit| u32::try_from(limit).map_err(|_| corrupt("limit", limit)));
    limit.transpose()
}
