//! `/auth/connections/{id}`.

use axum::extract::State;
use http::StatusCode;

use super::{ConnectionContext, TAG};
use crate::{
    api::{
        ErrorBody,
        auth_connections::{AuthConnection, UpdateAuthConnection},
    },
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json, Path},
};

/// Get an auth connection
#[utoipa::path(
    get,
    path = "/auth/connections/{id}",
    operation_id = "get_auth_connection",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses((status = 200, body = AuthConnection))
)]
pub(crate) async fn get(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    context: ConnectionContext,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<AuthConnection>> {
    let found = connections.get(&principal.project, &id).await?;
    let flow = logins.login_of(&found.row.id, principal.flow()).await?;
    Ok(Json(context.to_connection(
        found,
        flow.as_ref(),
        &principal,
    )))
}

/// Update an auth connection
///
/// Changes the settings. The domain and the profile stay.
#[utoipa::path(
    patch,
    path = "/auth/connections/{id}",
    operation_id = "update_auth_connection",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = UpdateAuthConnection, example = json!({
        "credential": {"name": "shop-admin"},
        "login_url": null,
        "health_checks": false,
    })),
    responses(
        (status = 200, body = AuthConnection),
        (status = 503, body = ErrorBody, description = "Other requests change the connection, or the disk of the server is full"),
    )
)]
pub(crate) async fn update(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    context: ConnectionContext,
    principal: Principal,
    Path(id): Path<String>,
    Json(request): Json<UpdateAuthConnection>,
) -> ApiResult<Json<AuthConnection>> {
    let updated = connections
        .update(&principal.project, &id, &request)
        .await?;
    let flow = logins.newest(&updated.row.id).await?;
    Ok(Json(context.to_connection(
        updated,
        flow.as_ref(),
        &principal,
    )))
}

/// Delete an auth connection
///
/// The profile and the credential stay.
#[utoipa::path(
    delete,
    path = "/auth/connections/{id}",
    operation_id = "delete_auth_connection",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The connection is deleted"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(connections): State<AuthConnections>,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    connections.delete(&principal.project, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
