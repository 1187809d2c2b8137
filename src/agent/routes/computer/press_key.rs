//! `POST /computer/press_key`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, PressKey},
    },
    http::{ApiResult, Json},
};

/// Press keys
///
/// Single keys and combinations, one after the other, or all at once for a time. None of them stays down.
#[utoipa::path(
    post,
    path = "/computer/press_key",
    operation_id = "press_key",
    tag = TAG,
    request_body = PressKey,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, an unknown key"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn press_key(
    State(agent): State<Agent>,
    Json(request): Json<PressKey>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::PressKey(request)).await
}
