//! `/fleet/hosts`.

use axum::extract::State;

use super::to_host;
use crate::{
    api::{
        ErrorBody,
        fleet::{FleetHost, HostRegistration, RegisterHost},
        paging::Page,
    },
    control::{
        fleet::registered::RegisteredHosts,
        routes::{
            auditing::Created,
            authentication::{AuthenticatedRegistrant, Principal},
            fleet::{TAG, organization_key},
            paged::Paged,
        },
    },
    http::{ApiResult, Json, Query},
};

/// Register a host
///
/// An agent calls this when it starts, and to renew its certificate. The bearer token is a join
/// token, of which the registration takes a use, or a JSON Web Token that is signed with the host's
/// own key (ES256) and expires within 60 s: `aud` is `berth:fleet:registration`, `sub` the
/// uncompressed point of the public key in base64url. A host whose key is known keeps its id and
/// needs no join token; one that was rebooted has lost its session. The 401 for a key that is not
/// known has the code `unknown_host`.
#[utoipa::path(
    post,
    path = "/fleet/hosts",
    operation_id = "register_host",
    tag = TAG,
    request_body(content = RegisterHost, example = json!({
        "address": "10.0.0.7:10001",
        "boot_id": "7f1c2a5e-6d0b-4c3f-9a8e-2b4d6f8a0c1e",
        "certificate_request": "-----BEGIN CERTIFICATE REQUEST-----\n…\n-----END CERTIFICATE REQUEST-----\n",
        "capabilities": {
            "display": true,
            "max_viewport": {"width": 3840, "height": 2160},
            "engine": "chromium",
            "memory_bytes": 4_294_967_296_u64
        },
        "version": "0.1.0"
    })),
    responses(
        (status = 201, body = HostRegistration),
        (status = 403, body = ErrorBody, description = "The certificate request has another key than the token of the host"),
        (status = 409, body = ErrorBody, description = "The key belongs to a registered host, and the request has a join token"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn register(
    State(hosts): State<RegisteredHosts>,
    AuthenticatedRegistrant(registrant): AuthenticatedRegistrant,
    Json(request): Json<RegisterHost>,
) -> ApiResult<Created<HostRegistration>> {
    let registered = hosts.register(registrant, request).await?;
    Ok(Created {
        id: registered.host.to_string(),
        body: HostRegistration {
            host_id: registered.host,
            certificate: registered.certificate.pem,
            certificate_expires_at: registered.certificate.expires_at.into(),
            ca_certificate: registered.ca_certificate,
            heartbeat_interval_seconds: hosts.heartbeat_interval().as_secs(),
        },
    })
}

/// List hosts
///
/// Lists the hosts that have registered themselves, newest first. Hosts that are gone are not
/// listed.
#[utoipa::path(
    get,
    path = "/fleet/hosts",
    operation_id = "list_hosts",
    tag = TAG,
    params(Page),
    responses(
        (status = 200, body = Vec<FleetHost>, headers(
            ("X-Has-More" = bool, description = "Whether there are more entries"),
            ("X-Next-Offset" = u64, description = "The offset of the next page, 0 on the last one"),
        )),
        (status = 403, body = ErrorBody, description = "The key of the request is bound to a project"),
    )
)]
pub(crate) async fn list(
    State(hosts): State<RegisteredHosts>,
    principal: Principal,
    Query(page): Query<Page>,
) -> ApiResult<Paged<FleetHost>> {
    organization_key(&principal)?;
    let (offset, limit) = (page.offset.get().into(), page.limit.get().into());
    let rows = hosts.list(offset, limit).await?;
    Ok(Paged::new(page, rows, to_host))
}
