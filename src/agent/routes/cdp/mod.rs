//! `GET /cdp`, and the connection of every DevTools client to Chromium.

mod socket;

use std::time::Duration;

use axum::{
    extract::{FromRef, Request, State},
    response::Response,
};
use tokio::time::timeout;

use self::socket::CdpSocket;
use crate::{
    agent::{
        Agent,
        cdp_clients::{Admitted, CdpClients},
        chromium::Devtools,
    },
    api::{ErrorBody, groups},
    http::{ApiError, ApiResult, is_websocket_upgrade},
    shutdown::Shutdown,
    system::cdp::{
        multiplexer::{ClientOptions, ConnectError, Endpoint},
        policy::Caller,
    },
};

pub(crate) const TAG: &str = groups::DEVTOOLS;

const OPTIONS: ClientOptions = ClientOptions {
    caller: Some(Caller::Client),
    // Chromium bounds what it sends.
    max_event: usize::MAX,
};
/// The time that a running Chromium has to answer the first command of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

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
    connector
        .connect(request, Endpoint::Browser, |_| true)
        .await
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
    /// Connects the client to Chromium, at the level of the browser or of a target.
    ///
    /// Waits while Chromium starts. If Chromium ends during the handshake, connects to the next
    /// one. `is_current` is whether a Chromium is the one that the client means.
    pub(crate) async fn connect(
        self,
        request: Request,
        endpoint: Endpoint,
        is_current: impl Fn(&Devtools) -> bool,
    ) -> ApiResult<Response> {
        if !is_websocket_upgrade(&request) {
            return Err(ApiError::websocket_required());
        }
        let deadline = self.clients.hold_deadline();
        let Admitted {
            mut devtools,
            permit,
        } = self.clients.admit().await?;
        let connection = loop {
            if !is_current(&devtools) {
                return Err(no_target());
            }
            let connecting = devtools.multiplexer.connect(endpoint.clone(), OPTIONS);
            match timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(Ok(connection)) => break connection,
                Ok(Err(ConnectError::NoTarget)) => return Err(no_target()),
                // Chromium ended just now, and the supervisor restarts it.
                Ok(Err(ConnectError::Gone)) => {
                    let successor = self.clients.wait_for_successor(&devtools, deadline);
                    devtools = successor.await?;
                }
                Err(_) => {
                    return Err(ApiError::timeout(
                        "Chromium did not respond to the handshake",
                    ));
                }
            }
        };
        let socket = CdpSocket {
            connection,
            permit,
            clients: self.clients,
            generation: devtools.generation,
            shutdown: self.shutdown,
        };
        socket.accept(request).await
    }
}

fn no_target() -> ApiError {
    ApiError::not_found("Chromium has no target with that id")
}
