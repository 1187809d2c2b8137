//! `PUT /chromium/start_url`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::{Agent, settings::parse_start_url},
    api::{
        ErrorBody,
        agent::{Done, StartUrlRequest},
    },
    http::{ApiError, ApiResult, Json},
};

/// Open a page in the tab in front
///
/// Later starts of Chromium open it too. A page that cannot be loaded is no error: the tab shows why.
#[utoipa::path(
    put,
    path = "/chromium/start_url",
    tag = TAG,
    request_body = StartUrlRequest,
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "not a URL a browser may start with"),
        (status = 503, body = ErrorBody, description = "Chromium is not up"),
    )
)]
pub async fn start_url(
    State(agent): State<Agent>,
    Json(request): Json<StartUrlRequest>,
) -> ApiResult<Json<Done>> {
    let url = parse_start_url(&request.url)
        .map_err(|what| ApiError::bad_request(format!("url: {what}")).detail("url", what))?;
    agent
        .chromium
        .open_start_url(url, agent.config.cdp_hold)
        .await?;
    Ok(Json(Done { ok: true }))
}
