//! `PUT /display`.

use axum::extract::State;

use super::chromium::CHANGE_TIMEOUT;
use crate::{
    agent::chromium::Chromium,
    api::{
        ErrorBody, groups,
        viewport::{Viewport, ViewportRequest},
    },
    http::{ApiResult, Json},
};

/// Resize the screen
///
/// Chromium's windows follow. A size beyond 2560 × 1600 that is also larger than any size since the
/// screen was started restarts Chromium: its tabs are lost. Without `refresh_rate` the current rate
/// stays.
#[utoipa::path(
    put,
    path = "/display",
    operation_id = "resize_display",
    tag = groups::DISPLAY,
    request_body(content = ViewportRequest, example = json!({"width": 1280, "height": 800})),
    responses(
        (status = 200, body = Viewport),
        (status = 400, body = ErrorBody, description = "A field is out of bounds"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn display(
    State(chromium): State<Chromium>,
    Json(request): Json<ViewportRequest>,
) -> ApiResult<Json<Viewport>> {
    let viewport = request.resolve(chromium.status().viewport.refresh_rate);
    chromium.resize(viewport, CHANGE_TIMEOUT).await?;
    Ok(Json(viewport))
}
