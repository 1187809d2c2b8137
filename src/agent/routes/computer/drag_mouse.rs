//! `POST /computer/drag_mouse`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, DragMouse},
    },
    http::{ApiResult, Json},
};

/// Drag with the mouse
///
/// Presses a button at the first point, goes from point to point, and releases it at the last.
#[utoipa::path(
    post,
    path = "/computer/drag_mouse",
    operation_id = "drag_mouse",
    tag = TAG,
    request_body = DragMouse,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, a point off the screen, fewer than two points, an unknown key, more than 200000 steps or 600 seconds"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn drag_mouse(
    State(agent): State<Agent>,
    Json(request): Json<DragMouse>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::DragMouse(request)).await
}
