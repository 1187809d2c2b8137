//! `/browser_pools/{id_or_name}/release`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    api::{ErrorBody, pools::ReleaseBrowser},
    control::{pools::Pools, routes::authentication::Principal},
    http::{ApiResult, Json, Path},
};

/// Release a browser
///
/// Ends a browser that was acquired from the pool, and responds once its host refuses all requests
/// for it. The host goes on with a new browser, in which nothing of the released one is left; with
/// `"reuse": false` the host is replaced, too.
///
/// Releasing a browser again has no effect.
#[utoipa::path(
    post,
    path = "/browser_pools/{id_or_name}/release",
    operation_id = "release_browser",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout")),
    request_body(content = ReleaseBrowser, example = json!({"session_id": "brw_01kgc3v7e8r9t0w1x2y3z4a5b6"})),
    responses(
        (status = 204, description = "The browser is released"),
        (status = 409, body = ErrorBody, description = "The browser is not leased from this pool (`not_leased`)"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn release(
    State(pools): State<Pools>,
    principal: Principal,
    Path(id_or_name): Path<String>,
    Json(request): Json<ReleaseBrowser>,
) -> ApiResult<StatusCode> {
    let reuse = request.reuse.unwrap_or(true);
    let session = request.session_id.0;
    pools
        .release(&principal.project, &id_or_name, &session, reuse)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
