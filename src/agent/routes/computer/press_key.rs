//! `POST /computer/press_key`.

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::computer::Computer,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, PressKey},
    },
    http::{ApiResult, Json},
};

/// Press keys
///
/// Presses single keys and combinations one after the other or, with `duration`, all of them
/// together for that time. All keys are released before the response.
#[utoipa::path(
    post,
    path = "/computer/press_key",
    operation_id = "press_key",
    tag = TAG,
    request_body(content = PressKey, example = json!({"keys": ["Ctrl+t"]})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "A field is out of bounds, or a key is unknown"),
        (status = 500, body = ErrorBody, description = "The action failed; all keys and buttons have been released"),
        (status = 503, body = ErrorBody, description = "The display or the browser is starting, or another client used mouse and keyboard for 60 s"),
    )
)]
pub(crate) async fn press_key(
    State(computer): State<Computer>,
    Json(request): Json<PressKey>,
) -> ApiResult<Json<Done>> {
    perform(&computer, Action::PressKey(request)).await
}
