//! `POST /session/end`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;

use super::TAG;
use crate::{
    agent::sessions::Sessions,
    api::{
        ErrorBody,
        session::{EndSession, SessionReceipt},
    },
    http::{ApiResult, Json},
};

/// End the session
///
/// Kills everything that the session has started, removes its profile, downloads and other files,
/// and continues with a new session that nothing has used before. Recordings are finished first.
/// Requests in progress are interrupted, and WebSockets closed with 4004. Returns a receipt of what
/// ended and of what was found afterwards; if that is not `clean`, the host should be replaced.
///
/// Repeating the request for the session that ended last returns its receipt again. With
/// `"wait": false` the response comes as soon as no request reaches the session any more.
#[utoipa::path(
    post,
    path = "/session/end",
    operation_id = "end_session",
    tag = TAG,
    request_body(content = EndSession, example = json!({"generation": 1})),
    responses(
        (status = 200, body = SessionReceipt),
        (status = 202, description = "The session is ending (with `\"wait\": false`)"),
        (status = 410, body = ErrorBody, description = "Another session is the current one"),
        (status = 503, body = ErrorBody, description = "The agent is shutting down"),
    )
)]
pub(crate) async fn end(
    State(sessions): State<Sessions>,
    Json(request): Json<EndSession>,
) -> ApiResult<Response> {
    if request.wait.unwrap_or(true) {
        let receipt = sessions.end(request.generation).await?;
        return Ok(Json(receipt).into_response());
    }
    sessions.begin_end(request.generation).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}
