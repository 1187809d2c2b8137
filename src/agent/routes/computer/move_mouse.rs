//! `POST /computer/move_mouse`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, MoveMouse},
    },
    http::{ApiResult, Json},
};

/// Move the mouse
///
/// At once, or along a curve and at the pace of a hand.
#[utoipa::path(
    post,
    path = "/computer/move_mouse",
    operation_id = "move_mouse",
    tag = TAG,
    request_body = MoveMouse,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, a place off the screen, an unknown key"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn move_mouse(
    State(agent): State<Agent>,
    Json(request): Json<MoveMouse>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::MoveMouse(request)).await
}
