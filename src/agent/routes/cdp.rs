//! `GET /cdp`, and the tunnel of every DevTools connection to Chromium.

use std::sync::Arc;

use axum::{
    extract::{FromRef, Request, State},
    response::Response,
};
use http::StatusCode;

use crate::{
    agent::{
        Agent,
        cdp_clients::{Admitted, CdpClients},
        chromium::Devtools,
    },
    api::{ErrorBody, groups},
    http::{
        ApiError, ApiResult, CloseCode, CloseReason, is_websocket_upgrade,
        tunnel::{Tunnel, TunnelError},
    },
    shutdown::Shutdown,
};

pub(crate) const TAG: &str = groups::DEVTOOLS;

/// Connect to the browser over DevTools
///
/// A WebSocket that speaks the Chrome DevTools Protocol, at the level of the browser. Pass its
/// address to `connectOverCDP` of Playwright or to `connect` of Puppeteer.
///
/// While Chromium starts, the handshake waits. When Chromium restarts, its clients are disconnected
/// with close code 4001 and the reason.
#[utoipa::path(
    get,
    path = "/cdp",
    operation_id = "connect_devtools",
    tag = TAG,
    responses(
        (status = 101, description = "The DevTools protocol, unchanged"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake"),
        (status = 429, body = ErrorBody, description = "The limit of DevTools clients is reached"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn cdp(
    State(connector): State<CdpConnector>,
    request: Request,
) -> ApiResult<Response> {
    connector.connect(request, None).await
}

/// The services that connect a client to Chromium's DevTools.
#[derive(Clone)]
pub(crate) struct CdpConnector {
    clients: CdpClients,
    shutdown: Shutdown,
}

impl FromRef<Agent> for CdpConnector {
    fn from_ref(agent: &Agent) -> Self {
        CdpConnector {
            clients: agent.cdp_clients.clone(),
            shutdown: agent.shutdown.clone(),
        }
    }
}

impl CdpConnector {
    /// Connects the client to `path` of Chromium's DevTools, or without a path to the browser.
    ///
    /// Waits while Chromium starts. If Chromium ends during the handshake, connects to the next
    /// one.
    pub(crate) async fn connect(
        self,
        mut request: Request,
        path: Option<String>,
    ) -> ApiResult<Response> {
        if !is_websocket_upgrade(&request) {
            return Err(ApiError::websocket_required());
        }
        let deadline = self.clients.hold_deadline();
        let Admitted {
            mut devtools,
            permit,
        } = self.clients.admit().await?;
        let permit = Arc::new(permit);
        let response = loop {
            let tunnel = self.tunnel(&devtools, path.clone()).hold(permit.clone());
            match tunnel.open(&mut request, &self.shutdown).await {
                // Chromium ended just now, and the supervisor restarts it.
                Err(TunnelError::Connect(_) | TunnelError::Broken(_)) => {
                    let successor = self.clients.wait_for_successor(&devtools, deadline);
                    devtools = successor.await?;
                }
                Err(TunnelError::NotAnUpgrade) => return Err(ApiError::websocket_required()),
                Err(TunnelError::Malformed(_)) => {
                    return Err(ApiError::bad_request("the handshake is malformed"));
                }
                Err(TunnelError::Timeout) => {
                    return Err(ApiError::timeout(
                        "Chromium did not respond to the handshake",
                    ));
                }
                Ok(response) => break response,
            }
        };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // Chromium responds with 500 if the tab is closed or the id is of an earlier Chromium.
            return Err(ApiError::not_found("Chromium has no target with that id"));
        }
        Ok(response)
    }

    fn tunnel(&self, devtools: &Devtools, path: Option<String>) -> Tunnel {
        let generation = devtools.generation;
        let clients = self.clients.clone();
        let is_page = path
            .as_ref()
            .is_some_and(|path| path.starts_with("/devtools/page/"));
        let path = path.unwrap_or_else(|| devtools.browser_path.clone());
        Tunnel::to(devtools.addr, path)
            .close_on(async move {
                let reason = clients.wait_until_gone(generation).await;
                CloseReason::new(CloseCode::BrowserRestarted, reason)
            })
            .on_upstream_closed(move || match is_page {
                true => CloseReason::new(CloseCode::Done, "the tab was closed, or Chromium ended"),
                false => CloseReason::new(
                    CloseCode::BrowserRestarted,
                    "Chromium ended and is restarting",
                ),
            })
    }
}
