//! `POST /computer/scroll`

use axum::extract::State;

use super::{TAG, perform};
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::Done,
        computer::{Action, Scroll},
    },
    http::{ApiResult, Json},
};

/// Scroll
///
/// Moves there and turns the wheel.
#[utoipa::path(
    post,
    path = "/computer/scroll",
    operation_id = "scroll",
    tag = TAG,
    request_body = Scroll,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "a field out of its bounds, a place off the screen, an unknown key"),
        (status = 500, body = ErrorBody, description = "it failed on the way; all keys and buttons are up"),
        (status = 503, body = ErrorBody, description = "the display or the browser is being started, or others have had mouse and keyboard for a minute"),
    )
)]
pub async fn scroll(
    State(agent): State<Agent>,
    Json(request): Json<Scroll>,
) -> ApiResult<Json<Done>> {
    perform(&agent, Action::Scroll(request)).await
}
