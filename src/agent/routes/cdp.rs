//! `GET /cdp`, and how every DevTools connection is carried to Chromium.

use axum::{
    extract::{Request, State},
    response::Response,
};
use http::StatusCode;

use super::RETRY_AFTER;
use crate::{
    agent::Agent,
    api::ErrorBody,
    http::{
        ApiError, ApiResult,
        tunnel::{Close, Tunnel, TunnelError},
    },
};

pub const TAG: &str = "devtools";

/// The browser's DevTools as a WebSocket
///
/// While Chromium starts, a new client is held. When it restarts, its clients get a Close frame (1012) with the reason.
#[utoipa::path(
    get,
    path = "/cdp",
    tag = TAG,
    responses(
        (status = 101, description = "the DevTools protocol, as Chromium speaks it"),
        (status = 400, body = ErrorBody, description = "not a WebSocket handshake"),
        (status = 429, body = ErrorBody, description = "too many clients"),
        (status = 503, body = ErrorBody, description = "Chromium is not up"),
    )
)]
pub async fn cdp(State(agent): State<Agent>, request: Request) -> ApiResult<Response> {
    connect(agent, request, None).await
}

/// Carries the client to `path` of Chromium's DevTools, or to the browser's own.
pub async fn connect(agent: Agent, request: Request, path: Option<String>) -> ApiResult<Response> {
    if !asks_for_websocket(&request) {
        return Err(ApiError::bad_request(
            "this route takes a WebSocket handshake",
        ));
    }
    let admitted = agent.clients.admit().await?;
    let devtools = admitted.devtools;
    let generation = devtools.generation;
    let clients = agent.clients.clone();
    let is_page = path
        .as_ref()
        .is_some_and(|path| path.starts_with("/devtools/page/"));
    let path = path.unwrap_or_else(|| devtools.browser_path.clone());
    let answer = Tunnel::to(devtools.addr, path)
        .until(async move { Close::restarting(clients.gone(generation).await) })
        .upstream_gone(move || match is_page {
            true => Close::going_away("the tab was closed, or Chromium ended"),
            false => Close::restarting("Chromium ended and is being restarted"),
        })
        .hold(admitted.place)
        .open(request, &agent.shutdown)
        .await
        .map_err(refused)?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Chromium says so with a 500: the tab was closed, or the id is an earlier Chromium's.
        return Err(ApiError::not_found("Chromium has no target of that id"));
    }
    Ok(answer)
}

fn asks_for_websocket(request: &Request) -> bool {
    request
        .headers()
        .get(http::header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn refused(error: TunnelError) -> ApiError {
    match error {
        TunnelError::NotAnUpgrade => {
            ApiError::bad_request("this route takes a WebSocket handshake")
        }
        TunnelError::Malformed(_) => ApiError::bad_request("the handshake is malformed"),
        // It died at this moment; the supervisor sees to it.
        TunnelError::Connect(_) | TunnelError::Broken(_) => {
            ApiError::unavailable("Chromium is being restarted", RETRY_AFTER)
        }
        TunnelError::Timeout => ApiError::timeout("Chromium did not answer the handshake"),
    }
}
