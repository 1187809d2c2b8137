//! `/browser_pools/{id_or_name}/flush`.

use axum::extract::State;
use http::StatusCode;

use super::TAG;
use crate::{
    api::ErrorBody,
    control::{pools::Pools, routes::authentication::Principal},
    http::{ApiResult, Path},
};

/// Flush a pool
///
/// Ends all idle browsers, and replaces them. None of them is handed out after the response.
/// Acquired browsers are not affected.
#[utoipa::path(
    post,
    path = "/browser_pools/{id_or_name}/flush",
    operation_id = "flush_pool",
    tag = TAG,
    params(("id_or_name" = String, Path, description = "The id or name of the pool", example = "checkout")),
    responses(
        (status = 204, description = "The idle browsers are ended"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn flush(
    State(pools): State<Pools>,
    principal: Principal,
    Path(id_or_name): Path<String>,
) -> ApiResult<StatusCode> {
    pools.flush(&principal.project, &id_or_name).await?;
    Ok(StatusCode::NO_CONTENT)
}
