//! `/fleet/hosts/{id}`.

use axum::extract::State;
use http::StatusCode;

use crate::{
    api::{ErrorBody, ids::HostId},
    control::{
        fleet::registered::RegisteredHosts,
        routes::{
            authentication::Principal,
            fleet::{TAG, organization_key},
        },
    },
    http::{ApiResult, Path},
};

/// Delete a host
///
/// Its identity is void from this response on, and its session has ended. Its machine is not
/// stopped, and may register again with a join token, as another host.
#[utoipa::path(
    delete,
    path = "/fleet/hosts/{id}",
    operation_id = "delete_host",
    tag = TAG,
    params(("id" = HostId, Path, description = "The id of the host", example = "host_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 204, description = "The host is deleted"),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn delete(
    State(hosts): State<RegisteredHosts>,
    principal: Principal,
    Path(id): Path<HostId>,
) -> ApiResult<StatusCode> {
    organization_key(&principal)?;
    hosts.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
