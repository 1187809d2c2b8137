//! `/auth/connections/{id}/cancel`.

use axum::extract::State;

use super::{ConnectionContext, TAG};
use crate::{
    api::{ErrorBody, auth_connections::AuthConnection},
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json, Path},
};

/// Cancel a login
///
/// Ends the login in progress and its browser. The profile stays as it was, unless it
/// is being saved already.
#[utoipa::path(
    post,
    path = "/auth/connections/{id}/cancel",
    operation_id = "cancel_auth_login",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = AuthConnection),
        (status = 409, body = ErrorBody, description = "`not_awaiting_input`: no login is in progress"),
        (status = 503, body = ErrorBody, description = "Other requests change the login, or the disk of the server is full"),
    )
)]
pub(crate) async fn cancel(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    context: ConnectionContext,
    principal: Principal,
    Path(id): Path<String>,
) -> ApiResult<Json<AuthConnection>> {
    let found = connections.get(&principal.project, &id).await?;
    let canceled = logins.cancel(&found.row.id, principal.flow()).await?;
    Ok(Json(context.to_connection(
        found,
        Some(&canceled),
        &principal,
    )))
}
