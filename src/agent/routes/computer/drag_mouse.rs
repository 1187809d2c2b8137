//! `POST /computer/drag_mouse`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, DragMouse},
    },
    http::{ApiResult, Json},
};

/// Drag the mouse
///
/// Presses a button at the first point, moves from point to point, and releases it at the last.
#[utoipa::path(
    post,
    path = "/computer/drag_mouse",
    operation_id = "drag_mouse",
    tag = TAG,
    request_body(content = DragMouse, example = json!({"path": [[100, 100], [300, 200]], "steps_per_segment": 20, "step_delay_ms": 10})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, a point is off the screen, there are fewer than two points, a key is unknown, or the drag exceeds 200,000 steps or 600 s"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn drag_mouse(
    State(computer): State<Computer>,
    Json(request): Json<DragMouse>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::DragMouse(request)).await
}
