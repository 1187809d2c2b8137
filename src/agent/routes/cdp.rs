//! `GET /cdp`, and how every DevTools connection is carried to Chromium.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use http::StatusCode;

use crate::{
    agent::{Agent, cdp_clients::Admitted, chromium::Devtools},
    api::ErrorBody,
    http::{
        ApiError, ApiResult,
        tunnel::{Close, Tunnel, TunnelError},
    },
};

pub const TAG: &str = crate::api::groups::DEVTOOLS;

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
pub async fn connect(
    agent: Agent,
    mut request: Request,
    path: Option<String>,
) -> ApiResult<Response> {
    if !asks_for_websocket(&request) {
        return Err(ApiError::bad_request(
            "this route takes a WebSocket handshake",
        ));
    }
    let deadline = agent.cdp_clients.hold_deadline();
    let Admitted {
        mut devtools,
        permit,
    } = agent.cdp_clients.admit().await?;
    let permit = Arc::new(permit);
    let answer = loop {
        let tunnel = tunnel(&agent, &devtools, path.clone()).hold(permit.clone());
        match tunnel.open(&mut request, &agent.shutdown).await {
            // It died at this moment; the supervisor sees to it.
            Err(TunnelError::Connect(_) | TunnelError::Broken(_)) => {
                devtools = agent
                    .cdp_clients
                    .wait_for_successor(&devtools, deadline)
                    .await?;
            }
            Err(TunnelError::NotAnUpgrade) => {
                return Err(ApiError::bad_request(
                    "this route takes a WebSocket handshake",
                ));
            }
            Err(TunnelError::Malformed(_)) => {
                return Err(ApiError::bad_request("the handshake is malformed"));
            }
            Err(TunnelError::Timeout) => {
                return Err(ApiError::timeout("Chromium did not answer the handshake"));
            }
            Ok(answer) => break answer,
        }
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Chromium says so with a 500: the tab was closed, or the id is an earlier Chromium's.
        return Err(ApiError::not_found("Chromium has no target of that id"));
    }
    Ok(answer)
}

fn tunnel(agent: &Agent, devtools: &Devtools, path: Option<String>) -> Tunnel {
    let generation = devtools.generation;
    let clients = agent.cdp_clients.clone();
    let is_page = path
        .as_ref()
        .is_some_and(|path| path.starts_with("/devtools/page/"));
    let path = path.unwrap_or_else(|| devtools.browser_path.clone());
    Tunnel::to(devtools.addr, path)
        .until(async move { Close::restarting(clients.wait_until_gone(generation).await) })
        .upstream_gone(move || match is_page {
            true => Close::going_away("the tab was closed, or Chromium ended"),
            false => Close::restarting("Chromium ended and is being restarted"),
        })
}

fn asks_for_websocket(request: &Request) -> bool {
    request
        .headers()
        .get(http::header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
