//! Limits of projects and of the organization.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::field::{self, Unsupported};

/// The limits of a project. Where a limit is null, that of the organization applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProjectLimits {
    /// Browsers at once, those that are starting included.
    #[schema(required)]
    pub max_concurrent_sessions: Option<u32>,
    /// Stored for clients. Nothing is limited by it.
    #[schema(required)]
    pub max_concurrent_invocations: Option<u32>,
    /// Always null: there are no pools.
    #[schema(required)]
    pub max_pooled_sessions: Option<u32>,
}

/// Changes of the limits of a project. Absent and null fields are not changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateProjectLimits {
    /// Browsers at once, up to 1000000. 0 removes the limit.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 1_000_000)]
    pub max_concurrent_sessions: Option<NewLimit>,
    /// A number up to 1000000, which limits nothing. 0 removes it.
    #[deserr(default)]
    #[schema(value_type = Option<u32>, maximum = 1_000_000)]
    pub max_concurrent_invocations: Option<NewLimit>,
    /// Not supported by this build.
    #[deserr(default)]
    #[schema(value_type = Option<u32>)]
    pub max_pooled_sessions: Unsupported,
}

/// The limits of the organization, and what is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrganizationLimits {
    /// Browsers at once in all projects.
    pub max_concurrent_sessions: u32,
    /// Browsers at once in each project that has no limit of its own. Null if there is none.
    #[schema(required)]
    pub default_project_max_concurrent_sessions: Option<u32>,
    /// Browsers in all projects, those that are starting included.
    pub concurrent_sessions_used: u32,
    /// Browsers that can be created.
    pub concurrent_sessions_available: u32,
    /// Auth connections in all projects.
    pub max_auth_connections: u32,
    /// Auth connections that exist.
    pub auth_connections_used: u32,
    /// The shortest interval of health checks of auth connections, in seconds.
    pub min_health_check_interval_seconds: u32,
    /// Always 0: there are no vaults.
    pub max_vaults: u32,
    /// Always 0: there are no vaults.
    pub vaults_used: u32,
}

/// Changes of the limits of the organization. Absent and null fields are not changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateOrganizationLimits {
    /// Browsers at once in each project that has no limit of its own: at most
    /// `max_concurrent_sessions`. 0 removes the limit.
    #[deserr(default)]
    #[schema(value_type = Option<u32>)]
    pub default_project_max_concurrent_sessions: Option<NewLimit>,
}

/// A limit to set, 0–1000000, of which 0 removes the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLimit(u32);

impl NewLimit {
    pub const MAX: u32 = 1_000_000;

    /// Returns the limit, or `None` to remove it.
    #[must_use]
    pub fn value(self) -> Option<u32> {
        (self.0 > 0).then_some(self.0)
    }
}

impl<E: DeserializeError> Deserr<E> for NewLimit {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, 0..=Self::MAX).map(NewLimit)
    }
}
