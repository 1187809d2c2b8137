//! `/org/projects`, and the deprecated `/projects`.

use axum::extract::State;

use super::{TAG, to_project};
use crate::{
    api::{
        ErrorBody,
        paging::Page,
        projects::{CreateProject, ListProjects, Project},
    },
    control::{
        projects::Projects,
        routes::{auditing::Created, authentication::Principal, paged::Paged},
        store::ProjectListing,
    },
    http::{ApiResult, Json, Query},
};

/// Create a project
///
/// Requires a key that is not bound to a project.
#[utoipa::path(
    post,
    path = "/org/projects",
    operation_id = "create_project",
    tag = TAG,
    request_body(content = CreateProject, example = json!({"name": "staging"})),
    responses(
        (status = 201, body = Project),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create(
    State(projects): State<Projects>,
    principal: Principal,
    Json(request): Json<CreateProject>,
) -> ApiResult<Created<Project>> {
    let row = projects.create(principal.project_scope()?, &request.name);
    let row = row.await?;
    Ok(Created {
        id: row.id.to_string(),
        body: to_project(row),
    })
}

/// List projects
///
/// Newest first. A key that is bound to a project lists only that one.
#[utoipa::path(
    get,
    path = "/org/projects",
    operation_id = "list_projects",
    tag = TAG,
    params(ListProjects, Page),
    responses((status = 200, body = Vec<Project>, headers(
        ("X-Has-More" = bool, description = "Whether there are more entries"),
        ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
    )))
)]
pub(crate) async fn list(
    State(projects): State<Projects>,
    principal: Principal,
    Query(request): Query<ListProjects>,
) -> ApiResult<Paged<Project>> {
    let page = request.page();
    let listing = ProjectListing {
        scope: None,
        name: request.name.map(Into::into),
        query: request.query.map(Into::into),
        offset: page.offset.get().into(),
        limit: page.limit.get().into(),
    };
    let rows = projects.list(principal.project_scope()?, listing).await?;
    Ok(Paged::new(page, rows, to_project))
}

/// Create a project (deprecated)
///
/// The same as `POST /org/projects`.
#[utoipa::path(
    post,
    path = "/projects",
    operation_id = "create_project_deprecated",
    tag = TAG,
    request_body(content = CreateProject, example = json!({"name": "staging"})),
    responses(
        (status = 201, body = Project),
        (status = 409, body = ErrorBody, description = "The name is taken"),
        (status = 410, body = ErrorBody, description = "The route was removed"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn create_deprecated(
    projects: State<Projects>,
    principal: Principal,
    request: Json<CreateProject>,
) -> ApiResult<Created<Project>> {
    create(projects, principal, request).await
}

/// List projects (deprecated)
///
/// The same as `GET /org/projects`.
#[utoipa::path(
    get,
    path = "/projects",
    operation_id = "list_projects_deprecated",
    tag = TAG,
    params(ListProjects, Page),
    responses(
        (status = 200, body = Vec<Project>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 410, body = ErrorBody, description = "The route was removed"),
    )
)]
pub(crate) async fn list_deprecated(
    projects: State<Projects>,
    principal: Principal,
    request: Query<ListProjects>,
) -> ApiResult<Paged<Project>> {
    list(projects, principal, request).await
}
