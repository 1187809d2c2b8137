//! `/org/projects`, and its deprecated alias `/projects` ([`sunset`]). A key that is bound to a
//! project finds only that project, and changes none.
//!
//! [`sunset`]: crate::control::routes::sunset

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    api::projects::Project,
    control::{Control, projects::ProjectError, routes::PROJECT_ARCHIVED, store::ProjectRow},
    http::ApiError,
};

mod collection;
mod item;
mod limits;

const TAG: &str = crate::api::groups::PROJECTS;

pub(crate) fn router() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(collection::create, collection::list))
        .routes(routes!(
            collection::create_deprecated,
            collection::list_deprecated
        ))
        .routes(routes!(item::get, item::update, item::delete))
        .routes(routes!(
            item::get_deprecated,
            item::update_deprecated,
            item::delete_deprecated
        ))
        .routes(routes!(limits::get, limits::update))
        .routes(routes!(limits::get_deprecated, limits::update_deprecated))
}

fn to_project(row: ProjectRow) -> Project {
    Project {
        id: row.id,
        name: row.name,
        status: row.status,
        created_at: row.created_at.into(),
        updated_at: row.updated_at.into(),
    }
}

impl From<ProjectError> for ApiError {
    fn from(error: ProjectError) -> Self {
        match error {
            error @ ProjectError::NotFound => ApiError::not_found(error.to_string()),
            error @ ProjectError::Archived => {
                ApiError::forbidden(error.to_string()).code(PROJECT_ARCHIVED)
            }
            error @ ProjectError::NameTaken => ApiError::conflict(error.to_string())
                .detail("name", "is taken")
                .permanent(),
            error @ ProjectError::NotEmpty => ApiError::conflict(error.to_string())
                .code("project_not_empty")
                .permanent(),
            error @ ProjectError::LastActive => ApiError::conflict(error.to_string())
                .code("last_active_project")
                .permanent(),
            error @ ProjectError::ExceedsOrganization(_) => {
                ApiError::bad_field("default_project_max_concurrent_sessions", error.to_string())
            }
            error @ ProjectError::KeyBound => ApiError::forbidden(error.to_string()),
            ProjectError::Store(cause) => cause.into(),
            ProjectError::Task(cause) => ApiError::internal(cause),
        }
    }
}
