//! `POST /computer/screenshot`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;

use super::TAG;
use crate::{
    agent::{computer::Computer, screenshots::Screenshots},
    api::{
        Binary, ErrorBody,
        screenshot::{Region, ScreenshotRequest},
    },
    http::{ApiResult, Json},
    system::x11::screen::Rect,
};

/// Take a screenshot
///
/// Returns a PNG image of the screen or of a region of it, including the pointer if it is shown.
/// After a scroll it waits until the page has received it.
/// Without a display the image is the viewport of the page in front.
#[utoipa::path(
    post,
    path = "/computer/screenshot",
    operation_id = "take_screenshot",
    tag = TAG,
    request_body(content = ScreenshotRequest, example = json!({"region": {"x": 0, "y": 0, "width": 640, "height": 480}})),
    responses(
        (status = 200, body = inline(Binary), content_type = "image/png"),
        (status = 400, body = ErrorBody, description = "The region is empty or not within the screen"),
        (status = 503, body = ErrorBody, description = "The display is not running or does not respond"),
    )
)]
pub(crate) async fn screenshot(
    State(computer): State<Computer>,
    State(screenshots): State<Screenshots>,
    Json(request): Json<ScreenshotRequest>,
) -> ApiResult<Response> {
    computer.scrolled().await;
    let png = screenshots.take(request.region.map(rect)).await?;
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
