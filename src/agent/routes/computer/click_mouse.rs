//! `POST /computer/click_mouse`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, ClickMouse},
    },
    http::{ApiResult, Json},
};

/// Click the mouse
///
/// Moves there and presses, releases or clicks a button. With `click_type` `down` the button stays down for the calls that follow, until one
/// releases it, or fails, or is given up by its client.
#[utoipa::path(
    post,
    path = "/computer/click_mouse",
    operation_id = "click_mouse",
    tag = TAG,
    request_body = ClickMouse,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, a place off the screen, an unknown key"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn click_mouse(
    State(agent): State<Agent>,
    Json(request): Json<ClickMouse>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::ClickMouse(request)).await
}
