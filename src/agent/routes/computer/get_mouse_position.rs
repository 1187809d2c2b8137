//! `POST /computer/get_mouse_position`.

use axum::extract::State;

use super::TAG;
use crate::{
    agent::computer::Computer,
    api::{ErrorBody, computer::MousePosition},
    http::{ApiResult, Json},
};

/// Get the position of the mouse
///
/// Responds immediately, even while a batch runs. Without a display this is the position that the
/// last action left the pointer at.
#[utoipa::path(
    post,
    path = "/computer/get_mouse_position",
    operation_id = "get_mouse_position",
    tag = TAG,
    responses(
        (status = 200, body = MousePosition),
        (status = 503, body = ErrorBody, description = "The display is starting"),
    )
)]
pub(crate) async fn get_mouse_position(
    State(computer): State<Computer>,
) -> ApiResult<Json<MousePosition>> {
    let position = computer.position().await?;
    Ok(Json(MousePosition {
        x: position.x,
        y: position.y,
    }))
}
