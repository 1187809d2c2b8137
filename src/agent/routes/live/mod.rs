//! `GET /live`, and the parts that it shares with `GET /live/view`.

use axum::{extract::State, response::Response};

use self::page::PAGE;
use super::FULL_RETRY_DELAY;
use crate::{
    agent::live::{LiveViewError, LiveViews},
    api::ErrorBody,
    http::{ApiError, ApiResult},
};

mod page;
pub(crate) mod socket;
pub(crate) mod view;

pub(crate) const TAG: &str = crate::api::groups::LIVE_VIEW;

/// Open the live view
///
/// Returns a web page that shows the browser's screen and forwards mouse, keyboard and clipboard.
/// The `browser_live_view_url` of a browser is the URL of this page. Its `jwt` parameter has the
/// token for the page's WebSocket, which cannot send a header.
#[utoipa::path(
    get,
    path = "/live",
    operation_id = "open_live_view",
    tag = TAG,
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 409, body = ErrorBody, description = "The browser has no display"),
    )
)]
pub(crate) async fn live(State(live): State<LiveViews>) -> ApiResult<Response> {
    show(&live)
}

/// Returns the page, unless there is no screen to show.
fn show(live: &LiveViews) -> ApiResult<Response> {
    live.check_available()?;
    Ok(PAGE.response(&[]))
}

impl From<LiveViewError> for ApiError {
    fn from(error: LiveViewError) -> Self {
        match error {
            LiveViewError::NoScreen(error) => error.into(),
            LiveViewError::LimitReached => {
                ApiError::limit_exceeded(error.to_string(), FULL_RETRY_DELAY)
            }
        }
    }
}
