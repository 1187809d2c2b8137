use axum::{
    extract::{Request, State},
    response::Response,
};

use super::{TAG, ask};
use crate::{
    api::ErrorBody,
    control::{
        Control,
        routes::{auth::Principal, public_base_url::PublicBaseUrl},
    },
    http::{ApiResult, Path},
};

/// List tabs and other targets
///
/// Chromium's own list, one object per target. `webSocketDebuggerUrl` leads through this server and
/// has a session token, so that it works as it is.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/list",
    operation_id = "list_targets",
    tag = TAG,
    params(("id" = String, Path, description = "The id or name of the browser", example = "brw_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = Vec<Value>),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
    )
)]
pub async fn list(
    State(control): State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    ask(&control, &principal, &base_url, &id, request).await
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
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is restarting"),
    )
)]
pub async fn root(
    control: State<Control>,
    principal: Principal,
    base_url: PublicBaseUrl,
    id: Path<String>,
    request: Request,
) -> ApiResult<Response> {
    list(control, principal, base_url, id, request).await
}
