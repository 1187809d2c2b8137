//! `/org/projects/{id_or_name}/limits`, and the deprecated `/projects/{id}/limits`.

use axum::extract::State;

use super::TAG;
use crate::{
    api::{
        ErrorBody,
        limits::{ProjectLimits, UpdateProjectLimits},
    },
    control::{projects::Projects, routes::authentication::Principal, store::ProjectLimitsRow},
    http::{ApiResult, Json, Path},
};

/// Get the limits of a project
///
/// A limit that is null is not set for the project, and that of the organization applies.
#[utoipa::path(
    get,
    path = "/org/projects/{id_or_name}/limits",
    operation_id = "get_project_limits",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the project", example = "staging")),
    responses((status = 200, body = ProjectLimits))
)]
pub(crate) async fn get(
    State(projects): State<Projects>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<Json<ProjectLimits>> {
    let limits = projects.limits(principal.project_scope()?, &id_or_name);
    Ok(Json(to_limits(limits.await?)))
}

/// Update the limits of a project
///
/// Requires a key that is not bound to a project. At the limit, creating a browser is 429. Browsers
/// beyond a new limit stay.
#[utoipa::path(
    patch,
    path = "/org/projects/{id_or_name}/limits",
    operation_id = "update_project_limits",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the project", example = "staging")),
    request_body(content = UpdateProjectLimits, example = json!({"max_concurrent_sessions": 5})),
    responses(
        (status = 200, body = ProjectLimits),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(projects): State<Projects>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Json(request): Json<UpdateProjectLimits>,
) -> ApiResult<Json<ProjectLimits>> {
    let limits = projects.update_limits(principal.project_scope()?, &id_or_name, &request);
    Ok(Json(to_limits(limits.await?)))
}

fn to_limits(row: ProjectLimitsRow) -> ProjectLimits {
    ProjectLimits {
        max_concurrent_sessions: row.max_concurrent_sessions,
        max_concurrent_invocations: row.max_concurrent_invocations,
        max_pooled_sessions: None,
    }
}

/// Get the limits of a project (deprecated)
///
/// The same as `GET /org/projects/{id_or_name}/limits`.
#[utoipa::path(
    get,
    path = "/projects/{id}/limits",
    operation_id = "get_project_limits_deprecated",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the project", example = "proj_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = ProjectLimits),
        (status = 410, body = ErrorBody, description = "The route was removed"),
    )
)]
pub(crate) async fn get_deprecated(
    projects: State<Projects>,
    principal: Principal,
    id: Path<String>,
) -> ApiResult<Json<ProjectLimits>> {
    get(projects, principal, id).await
}

/// Update the limits of a project (deprecated)
///
/// The same as `PATCH /org/projects/{id_or_name}/limits`.
#[utoipa::path(
    patch,
    path = "/projects/{id}/limits",
    operation_id = "update_project_limits_deprecated",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the project", example = "proj_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateProjectLimits, example = json!({"max_concurrent_sessions": 5})),
    responses(
        (status = 200, body = ProjectLimits),
        (status = 410, body = ErrorBody, description = "The route was removed"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update_deprecated(
    projects: State<Projects>,
    principal: Principal,
    id: Path<String>,
    request: Json<UpdateProjectLimits>,
) -> ApiResult<Json<ProjectLimits>> {
    update(projects, principal, id, request).await
}
