//! `POST /computer/get_mouse_position`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{ErrorBody, computer::MousePosition},
    http::{ApiResult, Json},
};

/// Where the pointer is
///
/// Answered at once, also while a batch is being done. Where the browser has no display it is where the pointer was brought last.
#[utoipa::path(
    post,
    path = "/computer/get_mouse_position",
    operation_id = "get_mouse_position",
    tag = TAG,
    responses(
        (status = 200, body = MousePosition),
        (status = 503, body = ErrorBody, description = "the display is being started"),
    )
)]
pub async fn get_mouse_position(State(agent): State<Agent>) -> ApiResult<Json<MousePosition>> {
    let at = agent.computer.position().await?;
    Ok(Json(MousePosition { x: at.x, y: at.y }))
}
