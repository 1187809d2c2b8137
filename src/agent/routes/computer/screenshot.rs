//! `POST /computer/screenshot`

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        screenshot::{Region, ScreenshotRequest},
    },
    http::{ApiResult, Json},
    system::x11::screen::Rect,
};

/// Take a screenshot
///
/// A PNG of the screen, or of a region of it, with the cursor where that is shown. Where the browser has no display it is what the page in
/// front shows.
#[utoipa::path(
    post,
    path = "/computer/screenshot",
    operation_id = "take_screenshot",
    tag = TAG,
    request_body = ScreenshotRequest,
    responses(
        (status = 200, body = Vec<u8>, content_type = "image/png"),
        (status = 400, body = ErrorBody, description = "the region is empty, or not within the screen"),
        (status = 503, body = ErrorBody, description = "the display is not up, or does not answer"),
    )
)]
pub async fn screenshot(
    State(agent): State<Agent>,
    Json(request): Json<ScreenshotRequest>,
) -> ApiResult<Response> {
    let png = agent.screenshots.take(request.region.map(rect)).await?;
    let headers = [
        (header::CONTENT_TYPE, "image/png"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, png).into_response())
}

fn rect(region: Region) -> Rect {
    Rect {
        x: region.x,
        y: region.y,
        width: region.width,
        height: region.height,
    }
}
