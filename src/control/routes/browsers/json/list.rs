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

/// The browser's tabs and other targets, each with the address of its DevTools
#[utoipa::path(
    get,
    path = "/browsers/{id}/json/list",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    responses(
        (status = 200, body = Vec<Value>),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is being restarted"),
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

/// The browser's tabs and other targets, each with the address of its DevTools
///
/// Another name of `/browsers/{id}/json/list`.
#[utoipa::path(
    get,
    path = "/browsers/{id}/json",
    tag = TAG,
    params(("id" = String, Path, description = "Id or name")),
    responses(
        (status = 200, body = Vec<Value>),
        (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "The browser is being restarted"),
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
