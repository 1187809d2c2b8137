//! `GET /json/version`, and its alias with a trailing slash.

use axum::extract::State;
use http::HeaderMap;
use serde_json::Value;

use super::{DevtoolsQueries, query};
use crate::{
    agent::routes::cdp::TAG,
    api::ErrorBody,
    http::{ApiResult, Json},
};

/// Get the browser's version and DevTools address
///
/// Returns Chromium's own response, with `webSocketDebuggerUrl` rewritten to point to this server.
/// DevTools clients that are given an HTTP address request this first. Waits while Chromium starts.
#[utoipa::path(
    get,
    path = "/json/version",
    operation_id = "get_devtools_version",
    tag = TAG,
    responses((status = 200, body = Value), (status = 503, body = ErrorBody, description = "Chromium is not running"))
)]
pub(crate) async fn version(
    State(queries): State<DevtoolsQueries>,
    headers: HeaderMap,
) -> ApiResult<Json<Value>> {
    query(&queries, &headers, "/json/version").await
}

/// Get the browser's version and DevTools address (alias)
///
/// The same as `GET /json/version`. Some clients add the trailing slash.
#[utoipa::path(
    get,
    path = "/json/version/",
    operation_id = "get_devtools_version_alias",
    tag = TAG,
    responses((status = 200, body = Value), (status = 503, body = ErrorBody, description = "Chromium is not running"))
)]
pub(crate) async fn version_slash(
    queries: State<DevtoolsQueries>,
    headers: HeaderMap,
) -> ApiResult<Json<Value>> {
    version(queries, headers).await
}
