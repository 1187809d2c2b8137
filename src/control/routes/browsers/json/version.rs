use axum::{
    extract::{Request, State},
    response::Response,
};

use super::{TAG, ask};
use crate::{
    api::ErrorBody,
    control::{
        Control,
        routes::{guard::Caller, reached::Reached},
    },
    http::{ApiResult, Path},
};

/// The browser's version and the address of its DevTools
///
/// What a DevTools client asks for when it is given this browser's HTTP address.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/version",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    responses(
        (status = 200, body = Value),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is being restarted"),
    )
)]
pub async fn version(
    State(control): State<Control>,
    caller: Caller,
    reached: Reached,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    ask(&control, &caller, &reached, &id, request).await
}

/// The browser's version and the address of its DevTools
///
/// Another spelling of `/browsers/{id}/json/version`, which some clients use.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/version/",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    responses(
        (status = 200, body = Value),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is being restarted"),
    )
)]
pub async fn version_slash(
    control: State<Control>,
    caller: Caller,
    reached: Reached,
    id: Path<String>,
    request: Request,
) -> ApiResult<Response> {
    version(control, caller, reached, id, request).await
}
