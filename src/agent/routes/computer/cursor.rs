//! `POST /computer/cursor`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, SetCursor},
    },
    http::{ApiResult, Json},
};

/// Hide or show the pointer
///
/// Applies to the screen itself, and so to screenshots, replays and the live view. It stays in
/// effect until it is changed again.
#[utoipa::path(
    post,
    path = "/computer/cursor",
    operation_id = "set_cursor",
    tag = TAG,
    request_body(content = SetCursor, example = json!({"hidden": true})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field has the wrong type"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser has no display"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn cursor(
    State(computer): State<Computer>,
    Json(request): Json<SetCursor>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::SetCursor(request)).await
}
