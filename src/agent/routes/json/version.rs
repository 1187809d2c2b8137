//! `GET /json/version`

use axum::extract::State;
use http::HeaderMap;
use serde_json::Value;

use super::ask;
use crate::{
    agent::{Agent, routes::cdp::TAG},
    api::ErrorBody,
    http::{ApiResult, Json},
};

/// The browser's version and DevTools address
///
/// Waits until Chromium answers.
#[utoipa::path(
    get,
    path = "/json/version",
    tag = TAG,
    responses((status = 200, body = Value), (status = 503, body = ErrorBody, description = "Chromium is not up"))
)]
pub async fn version(State(agent): State<Agent>, headers: HeaderMap) -> ApiResult<Json<Value>> {
    ask(&agent, &headers, "/json/version").await
}

/// The browser's version and DevTools address
///
/// Another name of `/json/version`, which some clients ask for.
#[utoipa::path(
    get,
    path = "/json/version/",
    tag = TAG,
    responses((status = 200, body = Value), (status = 503, body = ErrorBody, description = "Chromium is not up"))
)]
pub async fn version_slash(agent: State<Agent>, headers: HeaderMap) -> ApiResult<Json<Value>> {
    version(agent, headers).await
}
