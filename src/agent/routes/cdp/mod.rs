//! `GET /cdp`, and the connection of every DevTools client to Chromium.

mod resumable;
mod resumption;
mod socket;

use std::time::Duration;

use axum::{
    extract::{FromRef, Request, State},
    response::Response,
};
use tokio::time::timeout;

pub use self::resumption::{PassedConnection, ResumableConnections, StoppedConnection};
use self::{resumption::OpenedConnection, socket::CdpSocket};
use crate::{
    agent::{
        Agent,
        cdp_clients::{Admitted, CdpClients},
        chromium::Devtools,
    },
    api::{
        ErrorBody,
        devtools::{DevtoolsQuery, ResumeRequest},
        groups,
    },
    http::{ApiError, ApiResult, Query, is_websocket_upgrade},
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
///
/// With `resume=new` and the subprotocol `berth.resume.v1`, the connection outlives the loss of the
/// WebSocket: messages are numbered, and the client continues within 30 seconds with another
/// WebSocket, with the id of the connection and the number of the last message that it has
/// received. A connection that cannot be resumed is closed with 4012.
#[utoipa::path(
    get,
    path = "/cdp",
    operation_id = "connect_devtools",
    tag = TAG,
    params(DevtoolsQuery),
    responses(
        (status = 101, description = "The DevTools protocol, unchanged"),
        (status = 400, body = ErrorBody, description = "The request is not a WebSocket handshake, or a parameter is invalid"),
        (status = 429, body = ErrorBody, description = "The limit of DevTools clients is reached"),
        (status = 503, body = ErrorBody, description = "Chromium is not running"),
    )
)]
pub(crate) async fn cdp(
    State(connector): State<CdpConnector>,
    Query(query): Query<DevtoolsQuery>,
    request: Request,
) -> ApiResult<Response> {
    let requested = query.request().ok_or_else(|| {
        ApiError::bad_request("`received` belongs to the id of a connection in `resume`")
    })?;
    match requested {
        ResumeRequest::Plain => {
            connector
                .connect(request, Endpoint::Browser, |_| true)
                .await
        }
        ResumeRequest::New => connector.start_resumable(request).await,
        ResumeRequest::Resume { id, received } => connector.resume(request, id, received).await,
    }
}

/// The services that connect a client to Chromium's DevTools.
#[derive(Clone)]
pub(crate) struct CdpConnector {
    clients: CdpClients,
    resumable: ResumableConnections,
    shutdown: Shutdown,
}

impl FromRef<Agent> for CdpConnector {
    fn from_ref(agent: &Agent) -> Self {
        CdpConnector {
            clients: agent.cdp_clients.clone(),
            resumable: agent.resumable_connections.clone(),
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
        let OpenedConnection {
            channel,
            permit,
            clients,
            generation,
        } = self.open(endpoint, is_current).await?;
        let socket = CdpSocket {
            connection: channel,
            permit,
            clients,
            generation,
            shutdown: self.shutdown,
        };
        socket.accept(request).await
    }

    /// Opens a connection to Chromium.
    async fn open(
        &self,
        endpoint: Endpoint,
        is_current: impl Fn(&Devtools) -> bool,
    ) -> ApiResult<OpenedConnection> {
        let deadline = self.clients.hold_deadline();
        let Admitted {
            mut devtools,
            permit,
        } = self.clients.admit().await?;
        let channel = loop {
            if !is_current(&devtools) {
                return Err(no_target());
            }
            let connecting = devtools.multiplexer.connect(endpoint.clone(), OPTIONS);
            match timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(Ok(channel)) => break channel,
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
        Ok(OpenedConnection {
            channel,
            permit,
            clients: self.clients.clone(),
            generation: devtools.generation,
        })
    }
}

fn no_target() -> ApiError {
    ApiError::not_found("Chromium has no target with that id")
}
