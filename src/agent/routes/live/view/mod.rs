//! `GET /live/view`.

use axum::{extract::State, response::Response};

use super::{TAG, show};
use crate::{agent::live::LiveViews, api::ErrorBody, http::ApiResult};

pub(crate) mod socket;

/// Open the read-only live view
///
/// Returns the page of `/live` without input: it only shows the screen. The
/// `browser_live_view_read_only_url` of a browser is the URL of this page, with a token.
#[utoipa::path(
    get,
    path = "/live/view",
    operation_id = "open_live_view_read_only",
    tag = TAG,
    responses(
        (status = 200, description = "The page", body = String, content_type = "text/html"),
        (status = 409, body = ErrorBody, description = "The browser has no display"),
    )
)]
pub(crate) async fn view(State(live): State<LiveViews>) -> ApiResult<Response> {
    show(&live)
}
