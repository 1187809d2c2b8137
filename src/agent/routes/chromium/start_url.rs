//! `PUT /chromium/start_url`

use axum::extract::State;

use super::TAG;
use crate::{
    agent::Agent,
    api::{
        ErrorBody,
        agent::{Done, StartUrlRequest},
    },
    http::{ApiResult, Json},
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
    agent
        .chromium
        .open_start_url(request.url.into(), agent.config.cdp_hold)
        .await?;
    Ok(Json(Done { ok: true }))
}
