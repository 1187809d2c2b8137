//! `POST /computer/move_mouse`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, MoveMouse},
    },
    http::{ApiResult, Json},
};

/// Move the mouse
///
/// Moves the pointer at once or, with `smooth`, along a curve at human speed.
#[utoipa::path(
    post,
    path = "/computer/move_mouse",
    operation_id = "move_mouse",
    tag = TAG,
    request_body(content = MoveMouse, example = json!({"x": 640, "y": 360, "smooth": true})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, a position is off the screen, or a key is unknown"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn move_mouse(
    State(computer): State<Computer>,
    Json(request): Json<MoveMouse>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::MoveMouse(request)).await
}
