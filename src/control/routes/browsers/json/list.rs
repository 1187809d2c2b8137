//! `/browsers/{id}/json/list`.

use axum::{extract::Request, response::Response};

use super::{DevtoolsTargets, TAG};
use crate::{
    api::ErrorBody,
    http::{ApiResult, Path},
};

/// List tabs and other targets
///
/// Returns Chromium's own list, one object per target. `webSocketDebuggerUrl` points to this server
/// and contains a session token, so it can be used directly. `devtoolsFrontendUrl` is absent if it
/// is a page of another server.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/list",
    operation_id = "list_targets",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Vec<Value>),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn list(
    targets: DevtoolsTargets,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    targets.query(&id, request).await
}

/// List tabs and other targets (alias)
///
/// The same as `GET /browsers/{id}/json/list`.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json",
    operation_id = "list_targets_alias",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Vec<Value>),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn root(
    targets: DevtoolsTargets,
    id: Path<String>,
    request: Request,
) -> ApiResult<Response> {
    list(targets, id, request).await
}
