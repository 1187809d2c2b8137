//! `GET /json/version`, and its alias with a trailing slash.

use std::sync::Arc;

use axum::extract::State;
use http::HeaderMap;
use serde_json::{Value, json};

use super::{DevtoolsQueries, websocket_url};
use crate::{
    agent::{chromium::Devtools, routes::cdp::TAG},
    api::ErrorBody,
    http::{ApiResult, Json},
};

/// The version of the engine that Chromium reports, the same for all its releases since 2013.
const WEBKIT_VERSION: &str = "537.36";

/// Get the browser's version and DevTools address
///
/// Returns the members that Chromium's own server has. `webSocketDebuggerUrl` points to this
/// server. DevTools clients that are given an HTTP address request this first. Waits while Chromium
/// starts.
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
    let query = |devtools: Arc<Devtools>| async move {
        Ok((devtools.current_version().await?, devtools.browser_id))
    };
    let (version, id) = queries.query(query).await?;
    Ok(Json(json!({
        "Browser": version.product,
        "File-Path-Style": "posix",
        "Protocol-Version": version.protocol,
        "User-Agent": version.user_agent,
        "V8-Version": version.v8,
        "WebKit-Version": format!("{WEBKIT_VERSION} ({})", version.revision),
        "webSocketDebuggerUrl": websocket_url(&headers, &format!("/devtools/browser/{id}")),
    })))
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
