//! `POST /computer/click_mouse`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, ClickMouse},
    },
    http::{ApiResult, Json},
};

/// Click the mouse
///
/// Moves the pointer to a position and clicks, presses or releases a button. With `click_type`
/// `down` the button stays pressed for the calls that follow, until one releases it, fails, or is
/// cancelled by its client.
#[utoipa::path(
    post,
    path = "/computer/click_mouse",
    operation_id = "click_mouse",
    tag = TAG,
    request_body(content = ClickMouse, example = json!({"x": 320, "y": 240, "button": "left", "num_clicks": 2})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, a position is off the screen, or a key is unknown"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn click_mouse(
    State(computer): State<Computer>,
    Json(request): Json<ClickMouse>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::ClickMouse(request)).await
}
