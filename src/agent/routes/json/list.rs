//! `GET /json/list`, and `/json`

use axum::extract::State;
use http::HeaderMap;
use serde_json::Value;

use super::ask;
use crate::{
    agent::{Agent, routes::cdp::TAG},
    api::ErrorBody,
    http::{ApiResult, Json},
};

/// The browser's tabs and other targets
///
/// Waits until Chromium answers.
#[utoipa::path(
    get,
    path = "/json/list",
    tag = TAG,
    responses((status = 200, body = Vec<Value>), (status = 503, body = ErrorBody, description = "Chromium is not up"))
)]
pub async fn list(State(agent): State<Agent>, headers: HeaderMap) -> ApiResult<Json<Value>> {
    ask(&agent, &headers, "/json/list").await
}

/// The browser's tabs and other targets
///
/// Another name of `/json/list`.
#[utoipa::path(
    get,
    path = "/json",
    tag = TAG,
    responses((status = 200, body = Vec<Value>), (status = 503, body = ErrorBody, description = "Chromium is not up"))
)]
pub async fn root(agent: State<Agent>, headers: HeaderMap) -> ApiResult<Json<Value>> {
    list(agent, headers).await
}
