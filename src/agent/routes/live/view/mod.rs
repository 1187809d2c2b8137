//! `GET /live/view`

use axum::{extract::State, response::Response};

use super::{TAG, show};
use crate::{agent::Agent, api::ErrorBody, http::ApiResult};

pub mod socket;

/// The live view, to look at alone
///
/// The page of `/live` without hands: nothing that is done on it reaches the browser. `browser_live_view_read_only_url` leads here, with the
/// token that the page needs.
#[utoipa::path(
    get,
    path = "/live/view",
    operation_id = "live_view_read_only",
    tag = TAG,
    responses(
        (status = 200, description = "the page", body = String, content_type = "text/html"),
        (status = 409, body = ErrorBody, description = "the browser has no display"),
    )
)]
pub async fn view(State(agent): State<Agent>) -> ApiResult<Response> {
    show(&agent)
}
