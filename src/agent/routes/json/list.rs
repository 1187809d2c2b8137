//! `GET /json/list`, and its alias `GET /json`.

use std::sync::Arc;

use axum::extract::State;
use http::HeaderMap;
use serde_json::{Value, json};

use super::{DevtoolsQueries, websocket_url};
use crate::{
    agent::{chromium::Devtools, routes::cdp::TAG},
    api::ErrorBody,
    http::{ApiResult, Json},
    system::cdp::connection::Target,
};

/// The server of Chromium's vendor that has the DevTools of every revision.
const FRONTEND: &str = "https://chrome-devtools-frontend.appspot.com";

/// List tabs and other targets
///
/// Returns one object per target, the most recently used tab first, with the members that
/// Chromium's own server has. `webSocketDebuggerUrl` points to this server. Waits while Chromium
/// starts.
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
) -> ApiResult<Json<Vec<Value>>> {
    let query = |devtools: Arc<Devtools>| async move {
        let targets = devtools.targets().await?;
        Ok((targets, devtools.version.revision.clone()))
    };
    let (targets, revision) = queries.query(query).await?;
    let targets = targets.into_iter();
    Ok(Json(
        targets
            .map(|target| entry(target, &revision, &headers))
            .collect(),
    ))
}

/// Returns the description of a target that Chromium's own server would return.
fn entry(target: Target, revision: &str, headers: &HeaderMap) -> Value {
    let url = websocket_url(headers, &format!("/devtools/page/{}", target.id));
    let address = url.trim_start_matches("ws://");
    json!({
        "description": "",
        "devtoolsFrontendUrl": format!("{FRONTEND}/serve_rev/{revision}/inspector.html?ws={address}"),
        "id": target.id,
        "title": target.title,
        "type": target.kind,
        "url": target.url,
        "webSocketDebuggerUrl": url,
    })
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
) -> ApiResult<Json<Vec<Value>>> {
    list(queries, headers).await
}
