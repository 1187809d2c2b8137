//! `/fleet/hosts/{id}/drain`.

use axum::extract::State;

use super::to_host;
use crate::{
    api::{ErrorBody, fleet::FleetHost, ids::HostId},
    control::{
        fleet::registered::RegisteredHosts,
        routes::{
            authentication::Principal,
            fleet::{TAG, organization_key},
        },
    },
    http::{ApiResult, Json, Path},
};

/// Drain a host
///
/// The host gets no further session. Without one it is `retiring` at once, else when its session
/// ends, and gone when it does not report any more. Repeating the request has no effect.
#[utoipa::path(
    post,
    path = "/fleet/hosts/{id}/drain",
    operation_id = "drain_host",
    tag = TAG,
    params(("id" = HostId, Path, description = "The id of the host", example = "host_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    responses(
        (status = 200, body = FleetHost),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn drain(
    State(hosts): State<RegisteredHosts>,
    principal: Principal,
    Path(id): Path<HostId>,
) -> ApiResult<Json<FleetHost>> {
    organization_key(&principal)?;
    Ok(Json(to_host(hosts.drain(&id).await?)))
}
