//! `PUT /chromium/start_url`.

use std::sync::Arc;

use axum::extract::State;

use super::TAG;
use crate::{
    agent::{chromium::Chromium, settings::Config},
    api::{
        ErrorBody,
        agent::{Done, StartUrlRequest},
    },
    http::{ApiResult, Json},
};

/// Set the start URL
///
/// Opens the page in the tab in front, and in every later start of Chromium. A page that fails to
/// load is not an error: the tab shows the reason.
#[utoipa::path(
    put,
    path = "/chromium/start_url",
    operation_id = "set_start_url",
    tag = TAG,
    request_body(content = StartUrlRequest, example = json!({"url": "https://example.com"})),
    responses(
        (status = 200, body = Done),
        (status = 400, body = ErrorBody, description = "The URL is malformed, or its scheme is not http, https, about, data or file"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn start_url(
    State(chromium): State<Chromium>,
    State(config): State<Arc<Config>>,
    Json(request): Json<StartUrlRequest>,
) -> ApiResult<Json<Done>> {
    chromium
        .open_start_url(request.url.into(), config.cdp_hold)
        .await?;
    Ok(Json(Done { ok: true }))
}
