//! `PUT /display`

use axum::extract::State;

use super::chromium::CHANGE_DEADLINE;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        viewport::{Viewport, ViewportRequest},
    },
    http::{ApiResult, Json},
};

/// Resize the screen
///
/// Chromium's windows follow. A size beyond 2560 × 1600, and beyond what the screen has had since it was started, restarts
/// Chromium: its tabs are lost.
#[utoipa::path(
    put,
    path = "/display",
    tag = crate::api::groups::DISPLAY,
    request_body = ViewportRequest,
    responses(
        (status = 200, body = Viewport),
        (status = 400, body = ErrorBody, description = "out of bounds"),
        (status = 503, body = ErrorBody, description = "Chromium is not up"),
    )
)]
pub async fn display(
    State(agent): State<Agent>,
    Json(request): Json<ViewportRequest>,
) -> ApiResult<Json<Viewport>> {
    let viewport = request.resolve(agent.chromium.status().viewport.refresh_rate);
    agent.chromium.resize(viewport, CHANGE_DEADLINE).await?;
    Ok(Json(viewport))
}
