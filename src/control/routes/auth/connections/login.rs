//! `/auth/connections/{id}/login`.

use axum::{Extension, extract::State};
use secrecy::ExposeSecret;

use super::{ConnectionContext, TAG};
use crate::{
    api::{
        ErrorBody,
        auth_connections::{BeginAuthLogin, BegunAuthLogin},
    },
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::{auditing::UsedResource, authentication::Principal},
    },
    http::{ApiResult, Json, Path},
};

/// Begin a login
///
/// Starts a browser with the profile, and logs it in: with the stored credential, and with what a
/// person submits. The events of the connection show what is requested. A connection that was
/// logged in before is logged in again.
#[utoipa::path(
    post,
    path = "/auth/connections/{id}/login",
    operation_id = "begin_auth_login",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = BeginAuthLogin, example = json!({"record_session": false})),
    responses(
        (status = 200, body = BegunAuthLogin),
        (status = 409, body = ErrorBody, description = "`flow_in_progress`: a login of the connection is in progress"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn begin(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    context: ConnectionContext,
    principal: Principal,
    Extension(used): Extension<UsedResource>,
    Path(id): Path<String>,
    Json(request): Json<BeginAuthLogin>,
) -> ApiResult<Json<BegunAuthLogin>> {
    let key = principal.api_key()?.public_part.clone();
    let connection = connections.get(&principal.project, &id).await?.row;
    let begun = logins
        .begin(&connection, request.record_session, &key)
        .await?;
    used.set(format!("flows/{}", begun.row.id()));
    let code = begun.handoff_code.expose_secret();
    Ok(Json(BegunAuthLogin {
        hosted_url: context.page_with_code(&connection.id, code),
        id: connection.id,
        flow_type: begun.row.flow.settings().flow_type,
        handoff_code: code.to_owned(),
        flow_expires_at: begun.row.flow.expires_at().into(),
    }))
}
