//! `PUT /display`

use axum::extract::State;

use super::chromium::CHANGE_DEADLINE;
use crate::{
    agent::Agent,
    api::{ErrorBody, agent::DisplayRequest, viewport::Viewport},
    http::{ApiError, ApiResult, Json},
};

/// Resize the screen
///
/// Chromium's windows follow. A size beyond 2560 × 1600, and beyond what the screen has had since it was started, restarts
/// Chromium: its tabs are lost.
#[utoipa::path(
    put,
    path = "/display",
    tag = "display",
    request_body = DisplayRequest,
    responses(
        (status = 200, body = Viewport),
        (status = 400, body = ErrorBody, description = "out of bounds"),
        (status = 503, body = ErrorBody, description = "Chromium is not up"),
    )
)]
pub async fn display(
    State(agent): State<Agent>,
    Json(request): Json<DisplayRequest>,
) -> ApiResult<Json<Viewport>> {
    let viewport = Viewport {
        width: request.width,
        height: request.height,
        refresh_rate: request
            .refresh_rate
            .unwrap_or_else(|| agent.chromium.status().viewport.refresh_rate),
    };
    let problems = viewport.problems();
    if !problems.is_empty() {
        let refusal = ApiError::bad_request("the screen cannot have this size");
        return Err(problems
            .into_iter()
            .fold(refusal, |refusal, (field, what)| {
                refusal.detail(field, what)
            }));
    }
    agent.chromium.resize(viewport, CHANGE_DEADLINE).await?;
    Ok(Json(viewport))
}
