//! `GET /json/list`, and its alias `GET /json`.

use axum::extract::State;
use http::HeaderMap;
use serde_json::Value;

use super::{DevtoolsQueries, query};
use crate::{
    agent::routes::cdp::TAG,
    api::ErrorBody,
    http::{ApiResult, Json},
};

/// List tabs and other targets
///
/// Returns Chromium's own list, one object per target, with `webSocketDebuggerUrl` rewritten to
/// point to this server. Waits while Chromium starts.
#[utoipa::path(
    get,
    path = "/json/list",
    operation_id = "list_targets",
    tag = TAG,
    responses((status = 200, body = Vec<Value>), (status = 503, body = ErrorBody, description = "Chromium is not running"))
)]
pub(crate) async fn list(
    State(queries): State<DevtoolsQueries>,
    headers: HeaderMap,
) -> ApiResult<Json<Value>> {
    query(&queries, &headers, "/json/list").await
}

/// List tabs and other targets (alias)
///
/// The same as `GET /json/list`.
#[utoipa::path(
    get,
    path = "/json",
    operation_id = "list_targets_alias",
    tag = TAG,
    responses((status = 200, body = Vec<Value>), (status = 503, body = ErrorBody, description = "Chromium is not running"))
)]
pub(crate) async fn root(
    queries: State<DevtoolsQueries>,
    headers: HeaderMap,
) -> ApiResult<Json<Value>> {
    list(queries, headers).await
}
