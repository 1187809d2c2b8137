//! The limits of projects and of the organization.

use super::{ProjectError, ProjectScope, Projects};
use crate::{
    api::{
        ids::OrganizationId,
        limits::{NewLimit, UpdateProjectLimits},
    },
    control::store::ProjectLimitsRow,
};

/// The limits of the organization, and the number of its browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrganizationUsage {
    pub max_sessions: u32,
    /// The limit of projects that have none of their own.
    pub default_project_max_sessions: Option<u32>,
    /// The browsers that start or are active.
    pub sessions: u32,
}

impl Projects {
    /// Returns the limits of a project, found by its id or its name.
    pub async fn limits(
        &self,
        scope: ProjectScope<'_>,
        id_or_name: &str,
    ) -> Result<ProjectLimitsRow, ProjectError> {
        let project = self.get(scope, id_or_name).await?;
        let limits = self.inner.store.project_limits(&project.id).await?;
        limits.ok_or(ProjectError::NotFound)
    }

    /// Changes the limits of a project. Browsers beyond a new limit stay.
    pub async fn update_limits(
        &self,
        scope: ProjectScope<'_>,
        id_or_name: &str,
        change: &UpdateProjectLimits,
    ) -> Result<ProjectLimitsRow, ProjectError> {
        let project = self.get(scope, id_or_name).await?;
        scope.check_all()?;
        let store = &self.inner.store;
        let limits = store.change_project_limits(&project.id, change).await?;
        limits.ok_or(ProjectError::NotFound)
    }

    /// Returns the limits of the organization.
    pub async fn organization_usage(
        &self,
        scope: ProjectScope<'_>,
    ) -> Result<OrganizationUsage, ProjectError> {
        scope.check_all()?;
        let store = &self.inner.store;
        let organization = store.organization().await?;
        let sessions = store.count_live_browsers().await?;
        Ok(OrganizationUsage {
            max_sessions: self.inner.browsers.capacity().await?,
            default_project_max_sessions: organization.default_project_max_concurrent_sessions,
            sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
        })
    }

    /// Returns the id of the organization.
    pub async fn organization_id(&self) -> Result<OrganizationId, ProjectError> {
        Ok(self.inner.store.organization().await?.id)
    }

    /// Sets the limit of projects that have none of their own, at most that of the organization.
    pub async fn set_default_limit(
        &self,
        scope: ProjectScope<'_>,
        limit: NewLimit,
    ) -> Result<(), ProjectError> {
        scope.check_all()?;
        let capacity = self.inner.browsers.capacity().await?;
        if limit.value().is_some_and(|limit| limit > capacity) {
            return Err(ProjectError::ExceedsOrganization(capacity));
        }
        Ok(self.inner.store.set_default_project_limit(limit).await?)
    }
}
