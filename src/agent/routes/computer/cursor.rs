//! `POST /computer/cursor`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, SetCursor},
    },
    http::{ApiResult, Json},
};

/// Hide or show the pointer
///
/// On the screen itself, and so in screenshots, recordings and the live view. It stays so until it is changed again.
#[utoipa::path(
    post,
    path = "/computer/cursor",
    operation_id = "set_cursor",
    tag = TAG,
    request_body = SetCursor,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field of another type"),
        (status = 409, body = ErrorBody, description = "`no_display`: the browser runs without one"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn cursor(
    State(agent): State<Agent>,
    Json(request): Json<SetCursor>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::SetCursor(request)).await
}
