//! `/org/projects/{id_or_name}`, and the deprecated `/projects/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{TAG, to_project};
use crate::{
    api::{
        ErrorBody,
        projects::{Project, UpdateProject},
    },
    control::{projects::Projects, routes::authentication::Principal, store::ProjectChange},
    http::{ApiResult, Json, Path},
};

/// Get a project
///
/// Finds the project by its id or its name.
#[utoipa::path(
    get,
    path = "/org/projects/{id_or_name}",
    operation_id = "get_project",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the project", example = "staging")),
    responses((status = 200, body = Project))
)]
pub(crate) async fn get(
    State(projects): State<Projects>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<Json<Project>> {
    let row = projects.get(principal.project_scope()?, &id_or_name);
    Ok(Json(to_project(row.await?)))
}

/// Update a project
///
/// Changes the name or the status. Requires a key that is not bound to a project.
///
/// Archiving a project ends its browsers. Requests with its keys or its tokens, and requests that
/// select it, are 403 `project_archived` until it is active again. If it was the default project,
/// the oldest other active project becomes the default.
#[utoipa::path(
    patch,
    path = "/org/projects/{id_or_name}",
    operation_id = "update_project",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the project", example = "staging")),
    request_body(content = UpdateProject, example = json!({"name": "production", "status": "active"})),
    responses(
        (status = 200, body = Project),
        (status = 409, body = ErrorBody, description = "The name is taken, or the last active project would be archived (`last_active_project`)"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(projects): State<Projects>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Json(request): Json<UpdateProject>,
) -> ApiResult<Json<Project>> {
    let change = ProjectChange {
        name: request.name.map(Into::into),
        status: request.status,
    };
    let row = projects.update(principal.project_scope()?, &id_or_name, change);
    Ok(Json(to_project(row.await?)))
}

/// Delete a project
///
/// Requires a key that is not bound to a project. The project must have no active browsers and no
/// profiles. Its keys stop working, its replays are no longer listed, and its name becomes free. If
/// it was the default project, the oldest other active project becomes the default.
#[utoipa::path(
    delete,
    path = "/org/projects/{id_or_name}",
    operation_id = "delete_project",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the project", example = "staging")),
    responses(
        (status = 204, description = "The project is deleted"),
        (status = 409, body = ErrorBody, description = "The project has active browsers, pools, profiles, credentials or auth connections (`project_not_empty`), or is the last active one (`last_active_project`)"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(projects): State<Projects>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<StatusCode> {
    projects
        .delete(principal.project_scope()?, &id_or_name)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get a project (deprecated)
///
/// The same as `GET /org/projects/{id_or_name}`.
#[utoipa::path(
    get,
    path = "/projects/{id}",
    operation_id = "get_project_deprecated",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the project", example = "proj_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Project),
        (status = 410, body = ErrorBody, description = "The route was removed"),
    )
)]
pub(crate) async fn get_deprecated(
    projects: State<Projects>,
    principal: Principal,
    id: Path<String>,
) -> ApiResult<Json<Project>> {
    get(projects, principal, id).await
}

/// Update a project (deprecated)
///
/// The same as `PATCH /org/projects/{id_or_name}`.
#[utoipa::path(
    patch,
    path = "/projects/{id}",
    operation_id = "update_project_deprecated",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the project", example = "proj_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateProject, example = json!({"name": "production", "status": "active"})),
    responses(
        (status = 200, body = Project),
        (status = 409, body = ErrorBody, description = "The name is taken, or the last active project would be archived (`last_active_project`)"),
        (status = 410, body = ErrorBody, description = "The route was removed"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update_deprecated(
    projects: State<Projects>,
    principal: Principal,
    id: Path<String>,
    request: Json<UpdateProject>,
) -> ApiResult<Json<Project>> {
    update(projects, principal, id, request).await
}

/// Delete a project (deprecated)
///
/// The same as `DELETE /org/projects/{id_or_name}`.
#[utoipa::path(
    delete,
    path = "/projects/{id}",
    operation_id = "delete_project_deprecated",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the project", example = "proj_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The project is deleted"),
        (status = 409, body = ErrorBody, description = "The project has active browsers, pools, profiles, credentials or auth connections (`project_not_empty`), or is the last active one (`last_active_project`)"),
        (status = 410, body = ErrorBody, description = "The route was removed"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete_deprecated(
    projects: State<Projects>,
    principal: Principal,
    id: Path<String>,
) -> ApiResult<StatusCode> {
    delete(projects, principal, id).await
}
