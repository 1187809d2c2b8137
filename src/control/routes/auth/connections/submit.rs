//! `/auth/connections/{id}/submit`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    api::{ErrorBody, auth_connections::SubmitAccepted, auth_flow::SubmitAuthFlow},
    control::{
        auth_connections::{AuthConnections, logins::Logins},
        routes::authentication::Principal,
    },
    http::{ApiResult, Json, Path},
};

/// Answer a login
///
/// Submits the values, or the choice, that the login in progress requests. They are entered into
/// the site if it is still on the same page. The events show what follows.
#[utoipa::path(
    post,
    path = "/auth/connections/{id}/submit",
    operation_id = "submit_auth_login",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = SubmitAuthFlow, example = json!({"fields": {"password": "correct horse"}})),
    responses(
        (status = 202, body = SubmitAccepted, description = "The login enters the values, or selects the choice"),
        (status = 409, body = ErrorBody, description = "`stale_interaction`: the login has made another request since. `not_awaiting_input`: it requests nothing at this time, or there is none in progress"),
        (status = 503, body = ErrorBody, description = "Other requests change the login, or the disk of the server is full"),
    )
)]
pub(crate) async fn submit(
    State(connections): State<AuthConnections>,
    State(logins): State<Logins>,
    principal: Principal,
    Path(id): Path<String>,
    Json(request): Json<SubmitAuthFlow>,
) -> ApiResult<(StatusCode, Json<SubmitAccepted>)> {
    let connection = connections.get(&principal.project, &id).await?.row;
    logins
        .submit(&connection, principal.flow(), &request)
        .await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(SubmitAccepted { accepted: true }),
    ))
}
