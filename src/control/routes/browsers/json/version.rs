//! `/browsers/{id}/json/version`.

use axum::{extract::Request, response::Response};

use super::{DevtoolsTargets, TAG};
use crate::{
    api::ErrorBody,
    http::{ApiResult, Path},
};

/// Get the browser's version and DevTools address
///
/// DevTools clients that are given the HTTP address of a browser request this first.
/// `webSocketDebuggerUrl` points to this server and contains a session token.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/version",
    operation_id = "get_devtools_version",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Value),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn version(
    targets: DevtoolsTargets,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    targets.query(&id, request).await
}

/// Get the browser's version and DevTools address (alias)
///
/// The same as `GET /browsers/{id}/json/version`. Some clients add the trailing slash.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/version/",
    operation_id = "get_devtools_version_alias",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Value),
        (status = 502, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
        (status = 504, body = ErrorBody),
    )
)]
pub(crate) async fn version_slash(
    targets: DevtoolsTargets,
    id: Path<String>,
    request: Request,
) -> ApiResult<Response> {
    version(targets, id, request).await
}
