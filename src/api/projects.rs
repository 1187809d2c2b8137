//! Projects.

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    field,
    ids::ProjectId,
    name::ProjectName,
    paging::{Limit, Offset, Page, SearchText},
    time::Timestamp,
};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    pub id: ProjectId,
    pub name: String,
    pub status: ProjectStatus,
    pub created_at: Timestamp,
    /// The time of the last change of the name or the status.
    pub updated_at: Timestamp,
}

/// The status of a project. Nothing of an archived project can be used until it is active again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Deserr, ToSchema)]
#[serde(rename_all = "lowercase")]
#[deserr(rename_all = lowercase)]
pub enum ProjectStatus {
    Active,
    Archived,
}

/// The properties of a new project.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, ToSchema)]
pub struct CreateProject {
    /// Name of 1–255 characters, none of them `/`, `%` or a control character, unique among the
    /// projects. It must not have the form of a project id.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    pub name: ProjectName,
}

/// Changes of a project. Absent and null fields are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, ToSchema)]
pub struct UpdateProject {
    /// New name of 1–255 characters, none of them `/`, `%` or a control character, unique among the
    /// projects. It must not have the form of a project id.
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    pub name: Option<ProjectName>,
    /// New status. Archiving a project ends its browsers.
    #[deserr(default)]
    pub status: Option<ProjectStatus>,
}

/// Filters and paging of the list of projects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListProjects {
    /// Exact name of the project. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "staging")]
    pub name: Option<SearchText>,
    /// Text to search for in id and name, case-insensitive. At most 255 characters.
    #[deserr(default)]
    #[param(value_type = Option<String>, example = "stag")]
    pub query: Option<SearchText>,
    #[deserr(default)]
    #[param(ignore)]
    pub limit: Limit,
    #[deserr(default)]
    #[param(ignore)]
    pub offset: Offset,
}

impl ListProjects {
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            limit: self.limit,
            offset: self.offset,
        }
    }
}

impl<E: DeserializeError> Deserr<E> for ProjectName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, ProjectName::parse)
    }
}
