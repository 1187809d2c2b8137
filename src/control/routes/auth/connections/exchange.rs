//! `/auth/connections/{id}/exchange`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, State};
use chrono::Utc;
use http::HeaderMap;

use super::TAG;
use crate::{
    api::{
        ErrorBody,
        auth_connections::{ExchangeHandoffCode, ExchangedToken},
        ids::AuthConnectionId,
    },
    control::{
        Control,
        auth_connections::{
            flow_tokens::FlowGrant,
            logins::{ExchangeAttempt, LoginError},
        },
        keys::KeyError,
        routes::auditing::client_address,
        session_token::Issuer,
    },
    http::{ApiError, ApiResult, Json, Path},
};

/// Exchange the code of a login
///
/// Returns a token for the login that the code belongs to. It is valid for 30 minutes, for the
/// connection itself, its events, its answers and its cancellation. Needs no other credential.
#[utoipa::path(
    post,
    path = "/auth/connections/{id}/exchange",
    operation_id = "exchange_handoff_code",
    tag = TAG,
    params(("id" = String, Path, description = "The id of the connection", example = "conn_01kgc3v7e8r9t0w1x2y3z4a5b6")),
    request_body(content = ExchangeHandoffCode, example = json!({"code": "handoff_…"})),
    responses(
        (status = 200, body = ExchangedToken),
        (status = 400, body = ErrorBody, description = "`code` is missing or too long"),
        (status = 401, body = ErrorBody, description = "`invalid_handoff_code`: the code was used, has expired, or is not one of this connection"),
        (status = 429, body = ErrorBody, description = "Too many attempts from this address"),
        (status = 503, body = ErrorBody, description = "The disk of the server is full"),
    )
)]
pub(crate) async fn exchange(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Path(id): Path<String>,
    Json(request): Json<ExchangeHandoffCode>,
) -> ApiResult<Json<ExchangedToken>> {
    let attempt = ExchangeAttempt {
        connection: id.parse::<AuthConnectionId>().ok(),
        address: client_address(&control.trusted_proxies, peer, &headers),
    };
    let code = request.code.expose();
    let row = control.logins.find_code(&attempt, code).await?;
    let rejected = || ApiError::from(LoginError::InvalidCode);
    // The key of the login may have been deleted since.
    let key = row.started_by.as_deref().ok_or_else(rejected)?;
    let identity = match control.keys.identify(key).await {
        Ok(identity) => identity,
        Err(KeyError::Store(cause)) => return Err(cause.into()),
        Err(_) => return Err(rejected()),
    };
    let grant = FlowGrant {
        connection: row.connection_id.clone(),
        flow: row.id().clone(),
        project: row.project_id.clone(),
        issuer: Issuer {
            key: identity.public_part,
            expires_at: identity.expires_at,
        },
    };
    let issued = control.flow_tokens.issue(&grant, Utc::now()).await;
    let (jwt, _) = issued.map_err(LoginError::from)?;
    // As the last step, so that no failure uses the code up.
    control.logins.use_code(&row, code).await?;
    Ok(Json(ExchangedToken { jwt }))
}
