//! `/fleet/hosts/{id}/heartbeat`.

use axum::extract::State;

use super::to_phase;
use crate::{
    api::{
        ErrorBody,
        fleet::{HeartbeatAnswer, HostHeartbeat},
        ids::HostId,
    },
    control::{
        fleet::registered::RegisteredHosts,
        routes::{authentication::AuthenticatedHost, fleet::TAG},
    },
    http::{ApiResult, Json},
};

/// Report that a host is alive
///
/// The agent of the host calls this. The bearer token is a JSON Web Token that is signed with the
/// host's own key, as for the registration, with the `aud` `berth:fleet:heartbeat`. A host without
/// a heartbeat for three intervals is `lost`; its next heartbeat brings it back. The 401 of a host
/// that is not known (any more) has the code `unknown_host`; it may register with a join token. Any
/// other 401 is about the token alone.
#[utoipa::path(
    post,
    path = "/fleet/hosts/{id}/heartbeat",
    operation_id = "send_heartbeat",
    tag = TAG,
    params(("id" = HostId, Path, description = "The id of the host", example = "host_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = HostHeartbeat, example = json!({
        "boot_id": "7f1c2a5e-6d0b-4c3f-9a8e-2b4d6f8a0c1e",
        "generation": 1,
        "ready": true
    })),
    responses(
        (status = 200, body = HeartbeatAnswer),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn send(
    State(hosts): State<RegisteredHosts>,
    AuthenticatedHost(host): AuthenticatedHost,
    Json(report): Json<HostHeartbeat>,
) -> ApiResult<Json<HeartbeatAnswer>> {
    let host = hosts.heartbeat(*host, &report).await?;
    Ok(Json(HeartbeatAnswer {
        state: to_phase(host.life.state),
        draining: host.life.is_draining,
        heartbeat_interval_seconds: hosts.heartbeat_interval().as_secs(),
    }))
}
