//! `/org/limits`.

use axum::extract::State;

use crate::{
    api::{
        ErrorBody,
        auth_connections::MIN_HEALTH_CHECK_INTERVAL,
        groups::PROJECTS,
        limits::{OrganizationLimits, UpdateOrganizationLimits},
    },
    control::{
        auth_connections::{AuthConnectionUsage, AuthConnections},
        projects::{OrganizationUsage, Projects},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json},
};

/// Get the limits of the organization
///
/// Requires a key that is not bound to a project.
#[utoipa::path(
    get,
    path = "/org/limits",
    operation_id = "get_organization_limits",
    tag = PROJECTS,
    responses((status = 200, body = OrganizationLimits))
)]
pub(crate) async fn get(
    State(projects): State<Projects>,
    State(connections): State<AuthConnections>,
    principal: Principal,
) -> ApiResult<Json<OrganizationLimits>> {
    let usage = projects.organization_usage(principal.project_scope()?);
    Ok(Json(to_limits(usage.await?, connections.usage().await?)))
}

/// Update the limits of the organization
///
/// Requires a key that is not bound to a project. The new limit applies to the next browser of each
/// project that has no limit of its own; browsers beyond it stay.
#[utoipa::path(
    patch,
    path = "/org/limits",
    operation_id = "update_organization_limits",
    tag = PROJECTS,
    request_body(content = UpdateOrganizationLimits, example = json!({"default_project_max_concurrent_sessions": 10})),
    responses(
        (status = 200, body = OrganizationLimits),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(projects): State<Projects>,
    State(connections): State<AuthConnections>,
    principal: Principal,
    Json(request): Json<UpdateOrganizationLimits>,
) -> ApiResult<Json<OrganizationLimits>> {
    let scope = principal.project_scope()?;
    if let Some(limit) = request.default_project_max_concurrent_sessions {
        projects.set_default_limit(scope, limit).await?;
    }
    let usage = projects.organization_usage(scope).await?;
    Ok(Json(to_limits(usage, connections.usage().await?)))
}

fn to_limits(usage: OrganizationUsage, connections: AuthConnectionUsage) -> OrganizationLimits {
    OrganizationLimits {
        max_concurrent_sessions: usage.max_sessions,
        default_project_max_concurrent_sessions: usage.default_project_max_sessions,
        concurrent_sessions_used: usage.sessions,
        concurrent_sessions_available: usage.max_sessions.saturating_sub(usage.sessions),
        max_auth_connections: connections.limit,
        auth_connections_used: connections.used,
        min_health_check_interval_seconds: MIN_HEALTH_CHECK_INTERVAL,
        max_vaults: 0,
        vaults_used: 0,
    }
}
