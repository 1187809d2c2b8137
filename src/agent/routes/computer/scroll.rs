//! `POST /computer/scroll`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, Scroll},
    },
    http::{ApiResult, Json},
};

/// Scroll the mouse wheel
///
/// Moves the pointer to a position and turns the wheel.
#[utoipa::path(
    post,
    path = "/computer/scroll",
    operation_id = "scroll",
    tag = TAG,
    request_body(content = Scroll, example = json!({"x": 640, "y": 360, "delta_y": 3})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, a position is off the screen, or a key is unknown"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn scroll(
    State(computer): State<Computer>,
    Json(request): Json<Scroll>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::Scroll(request)).await
}
