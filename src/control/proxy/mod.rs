//! Forwards a browser's session routes to its agent. Bodies are streamed unchanged both ways.
//!
//! - [`path`]: which paths may be forwarded.
//! - [`headers`]: which headers an agent receives.
//! - [`body`]: the request bodies, which report their progress, and the response bodies, which end
//!   with their browser.
//!
//! ```text
//! client ──▶ forward ──▶ HTTP request over a pooled connection ──▶ agent
//!               └──────▶ tunnel for a WebSocket upgrade ─────────▶ agent
//! ```
//!
//! An [`ActivityGuard`] marks the browser as active until the last byte of the response, or until
//! the tunnel closes. A browser that ends also ends its requests: whatever the agent does, those
//! without a response fail with [`ProxyError::BrowserEnded`], and the others are aborted.

mod body;
mod headers;
mod path;

use std::{sync::Arc, time::Duration};

use axum::{body::Body, extract::Request, response::Response};
use http::{Method, StatusCode, Uri, header, request::Parts};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Builder, Client, connect::HttpConnector};
use rustls::ClientConfig;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use self::body::{Progress, RequestBody, ResponseBody};
pub use self::path::{PathError, SessionPath};
use super::{
    activity::{Activity, ActivityGuard},
    caller_limits::StreamPermit,
    fleet::{
        AgentAccess, AgentEndpoint, HostConnector, agent_client_builder, host_connector,
        host_server_name, local_connector,
    },
};
use crate::{
    http::{
        CloseCode, CloseReason, GuardedBody, PassThrough, forward, is_websocket_upgrade,
        tunnel::{Tunnel, TunnelError, TunnelTls},
    },
    shutdown::Shutdown,
};

/// The time in which an agent must respond to a complete request. Longer than any session route may
/// take: the longest batch of input has 600 s of waits, 200,000 steps of 20 ms and 300 s in
/// reserve.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90 * 60);
/// The most idle connections to one agent.
const MAX_IDLE_CONNECTIONS: usize = 512;

/// The agent that a request is forwarded to, and the activity of its browser.
#[derive(Clone)]
pub struct ProxyTarget {
    /// Names the session of the agent, which rejects the request in another one.
    pub agent: AgentEndpoint,
    pub activity: Arc<Activity>,
    /// Cancelled when the browser ends, which ends its requests and closes its WebSockets.
    pub ended: CancellationToken,
}

/// Why a request has no response from the agent.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the method is not forwarded")]
    Method,
    #[error("malformed request URL")]
    Malformed(#[source] http::Error),
    #[error("cannot connect to the agent")]
    Unreachable(#[source] BoxError),
    #[error("the agent disconnected before it responded")]
    Disconnected(#[source] BoxError),
    #[error("the request body is incomplete")]
    Body(#[source] BoxError),
    #[error("the agent did not respond in time")]
    Timeout,
    #[error("the browser has ended")]
    BrowserEnded,
    #[error("the browser has ended with the server")]
    ShuttingDown,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client for registered hosts.
struct HostClient {
    http: Client<HostConnector, RequestBody<Body>>,
    /// The settings with which tunnels connect.
    tls: Arc<ClientConfig>,
}

/// Forwards requests. Clones share its connections.
#[derive(Clone)]
pub struct Proxy {
    plain: Client<HttpConnector, RequestBody<Body>>,
    /// Absent in a proxy to agents on this machine alone.
    to_hosts: Option<Arc<HostClient>>,
    max_idle: usize,
    shutdown: Shutdown,
    response_timeout: Duration,
}

impl Proxy {
    /// Creates a proxy that keeps up to `max_idle` idle connections to each agent, and at most
    /// [`MAX_IDLE_CONNECTIONS`].
    pub fn new(shutdown: &Shutdown, max_idle: usize) -> Self {
        let max_idle = max_idle.clamp(1, MAX_IDLE_CONNECTIONS);
        Self {
            plain: builder(max_idle).build(local_connector()),
            to_hosts: None,
            max_idle,
            shutdown: shutdown.clone(),
            response_timeout: RESPONSE_TIMEOUT,
        }
    }

    /// Makes the proxy reach registered hosts, too, with control's certificate.
    #[must_use]
    pub fn with_registered_hosts(mut self, tls: ClientConfig) -> Self {
        let connector = host_connector(tls.clone());
        self.to_hosts = Some(Arc::new(HostClient {
            http: builder(self.max_idle).build(connector),
            tls: Arc::new(tls),
        }));
        self
    }

    /// Changes how long an agent may take to respond.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// Forwards a request to `path` of the agent and returns the response.
    pub async fn forward(
        &self,
        target: &ProxyTarget,
        path: SessionPath<'_>,
        request: Request,
    ) -> Result<Response, ProxyError> {
        // CONNECT is for reaching other hosts. TRACE returns the request with the agent's token.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(ProxyError::Method);
        }
        let guard = target.activity.begin();
        let path_and_query = match request.uri().query().and_then(path::without_token) {
            Some(query) => format!("{}?{query}", path.as_str()),
            None => path.as_str().to_owned(),
        };
        if is_websocket_upgrade(&request) {
            self.upgrade(target, path_and_query, guard, request).await
        } else {
            self.exchange(target, &path_and_query, guard, request).await
        }
    }

    async fn upgrade(
        &self,
        target: &ProxyTarget,
        path_and_query: String,
        guard: ActivityGuard,
        request: Request,
    ) -> Result<Response, ProxyError> {
        let (parts, body) = request.into_parts();
        let mut headers = headers::for_agent(&parts, target);
        let permit = parts.extensions.get::<StreamPermit>().cloned();
        // An upgrade has no body.
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::EXPECT);
        let tunnel = Tunnel::to(target.agent.address, path_and_query)
            .tls(self.tunnel_tls(&target.agent)?)
            .headers(headers)
            .response_timeout(self.response_timeout)
            .close_on(browser_ended(target.ended.clone()))
            .on_upstream_closed(|| {
                CloseReason::new(CloseCode::Failed, "the connection to the browser is lost")
            })
            .hold((guard, permit));
        let mut request = Request::from_parts(parts, body);
        let response = tokio::select! {
            biased;
            () = target.ended.cancelled() => return Err(self.reason_of_end()),
            response = tunnel.open(&mut request, &self.shutdown) => response,
        };
        response.map_err(|error| match error {
            TunnelError::NotAnUpgrade => ProxyError::Method,
            TunnelError::Malformed(cause) => ProxyError::Malformed(cause),
            TunnelError::Connect(cause) => ProxyError::Unreachable(cause.into()),
            TunnelError::Broken(cause) => ProxyError::Disconnected(cause.into()),
            TunnelError::Timeout => ProxyError::Timeout,
        })
    }

    async fn exchange(
        &self,
        target: &ProxyTarget,
        path_and_query: &str,
        guard: ActivityGuard,
        request: Request,
    ) -> Result<Response, ProxyError> {
        let (parts, body) = request.into_parts();
        let progress = Progress::new();
        let outgoing = self.agent_request(
            target,
            path_and_query,
            &parts,
            RequestBody::new(body, progress.clone()),
        )?;
        let mut response = tokio::select! {
            // Its agent may have rejected the request, or closed the connection, for the same
            // reason.
            biased;
            () = target.ended.cancelled() => return Err(self.reason_of_end()),
            response = self.send(&target.agent, outgoing) => response.map_err(classify)?,
            () = wait_stalled(&progress, self.response_timeout) => return Err(ProxyError::Timeout),
        };
        forward::strip_hop_by_hop(response.headers_mut());
        response.extensions_mut().insert(PassThrough);
        let ended = target.ended.clone();
        Ok(response.map(|body: Incoming| {
            Body::new(GuardedBody::new(ResponseBody::new(body, ended), guard))
        }))
    }

    /// Returns why a browser has ended: local ones end with the server.
    fn reason_of_end(&self) -> ProxyError {
        match self.shutdown.is_requested() {
            true => ProxyError::ShuttingDown,
            false => ProxyError::BrowserEnded,
        }
    }

    async fn send(
        &self,
        agent: &AgentEndpoint,
        request: http::Request<RequestBody<Body>>,
    ) -> Result<http::Response<Incoming>, hyper_util::client::legacy::Error> {
        match (&agent.access, &self.to_hosts) {
            (AgentAccess::Certificate(_), Some(client)) => client.http.request(request).await,
            // Without control's certificate, `https` is an error of the connector.
            _ => self.plain.request(request).await,
        }
    }

    /// Returns the TLS settings of a tunnel to an agent. `None` for one on this machine.
    fn tunnel_tls(&self, agent: &AgentEndpoint) -> Result<Option<TunnelTls>, ProxyError> {
        let AgentAccess::Certificate(id) = &agent.access else {
            return Ok(None);
        };
        let unreachable = |reason: BoxError| ProxyError::Unreachable(reason);
        let client = self.to_hosts.as_ref();
        let client = client.ok_or_else(|| unreachable("control has no certificate".into()))?;
        Ok(Some(TunnelTls {
            config: client.tls.clone(),
            server_name: host_server_name(id).map_err(|error| unreachable(error.into()))?,
        }))
    }

    fn agent_request(
        &self,
        target: &ProxyTarget,
        path_and_query: &str,
        parts: &Parts,
        body: RequestBody<Body>,
    ) -> Result<http::Request<RequestBody<Body>>, ProxyError> {
        let (scheme, authority) = target.agent.origin();
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(path_and_query)
            .build()
            .map_err(ProxyError::Malformed)?;
        let headers = headers::for_agent(parts, target);
        let expects_continue = headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut outgoing = http::Request::new(body);
        *outgoing.method_mut() = parts.method.clone();
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = headers;
        if !expects_continue {
            return Ok(outgoing);
        }
        // The agent decides whether the client shall send the body, not control.
        let body_requested = CancellationToken::new();
        let continued = body_requested.clone();
        let mut outgoing = outgoing.map(|body| body.hold_until(body_requested));
        hyper::ext::on_informational(&mut outgoing, move |response| {
            if response.status() == StatusCode::CONTINUE {
                continued.cancel();
            }
        });
        Ok(outgoing)
    }
}

fn builder(max_idle: usize) -> Builder {
    let mut builder = agent_client_builder();
    builder.pool_max_idle_per_host(max_idle);
    builder
}

async fn browser_ended(ended: CancellationToken) -> CloseReason {
    ended.cancelled_owned().await;
    CloseReason::new(CloseCode::SessionEnded, "the browser has ended")
}

/// Resolves when the request body has made no progress for `limit`.
async fn wait_stalled(progress: &Progress, limit: Duration) {
    loop {
        let last = progress.last();
        sleep_until(last + limit).await;
        if progress.last() == last {
            return;
        }
    }
}

fn classify(error: hyper_util::client::legacy::Error) -> ProxyError {
    if error.is_connect() {
        return ProxyError::Unreachable(error.into());
    }
    // The request body is the only user-supplied part that can fail.
    let is_body_error = std::error::Error::source(&error)
        .and_then(|cause| cause.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_user);
    if is_body_error {
        ProxyError::Body(error.into())
    } else {
        ProxyError::Disconnected(error.into())
    }
}
