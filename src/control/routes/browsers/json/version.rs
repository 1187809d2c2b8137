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
    principal: Principal,
    base_url: PublicBaseUrl,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    ask(&control, &principal, &base_url, &id, request).await
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
    principal: Principal,
    base_url: PublicBaseUrl,
    id: Path<String>,
    request: Request,
) -> ApiResult<Response> {
    version(control, principal, base_url, id, request).await
}
