//! Passing a browser's session routes on to its agent, byte for byte, both ways.

mod body;
mod headers;
mod path;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::SecretString;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use self::body::{Held, Outgoing, Progress};
pub use self::path::{PathError, SessionPath};
use super::activity::{Activity, ActivityGuard};
use crate::http::tunnel::{Close, Tunnel, TunnelError};
use crate::http::{AsItIs, forward};
use crate::shutdown::Shutdown;

/// How long an agent may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an agent may take to begin its answer, once it has the whole request. Above what any session route allows itself:
/// the longest batch of input has 600 s of waits, 200,000 steps of 20 ms, and 300 s to spare.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90 * 60);
/// Shorter than the agent keeps a silent connection, so that a request is not sent on one that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(15);
/// Connections kept for the next request, per agent.
const POOL_SIZE: usize = 32;
/// A host that is silent for this long is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Where a request goes, and what it keeps busy meanwhile.
#[derive(Clone)]
pub struct Agent {
    pub addr: SocketAddr,
    pub token: SecretString,
    pub activity: Arc<Activity>,
    /// Cancelled once the browser ends; its connections then end with that as their reason.
    pub ended: CancellationToken,
}

/// Why there is no answer of the agent.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the method is not passed on")]
    Method,
    #[error("the address does not make a request")]
    Malformed(#[source] http::Error),
    #[error("cannot connect to the agent")]
    Unreachable(#[source] BoxError),
    #[error("the agent broke off before it answered")]
    Broken(#[source] BoxError),
    #[error("the request's body did not come whole")]
    Body(#[source] BoxError),
    #[error("the agent did not answer in time")]
    Timeout,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Passes requests on; clones share its connections.
#[derive(Clone)]
pub struct Proxy {
    client: Client<HttpConnector, Outgoing<Body>>,
    shutdown: Shutdown,
    answer_timeout: Duration,
}

impl Proxy {
    pub fn new(shutdown: &Shutdown) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE / 3));
        connector.set_keepalive_retries(Some(3));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_SIZE)
            .build(connector);
        Self {
            client,
            shutdown: shutdown.clone(),
            answer_timeout: ANSWER_TIMEOUT,
        }
    }

    /// Another time for the agent to begin its answer in.
    #[must_use]
    pub fn answer_timeout(mut self, limit: Duration) -> Self {
        self.answer_timeout = limit;
        self
    }

    /// Passes the request on to `path` of the agent, and its answer back.
    pub async fn pass(
        &self,
        agent: &Agent,
        path: SessionPath<'_>,
        request: Request,
    ) -> Result<Response, ProxyError> {
        // The one leads nowhere but to another host; the other sends back what it got, our token included.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(ProxyError::Method);
        }
        let guard = agent.activity.begin();
        let path_and_query = match request.uri().query().and_then(path::without_token) {
            Some(query) => format!("{}?{query}", path.as_str()),
            None => path.as_str().to_owned(),
        };
        if asks_for_websocket(&request) {
            self.upgrade(agent, path_and_query, guard, request).await
        } else {
            self.exchange(agent, &path_and_query, guard, request).await
        }
    }

    async fn upgrade(
        &self,
        agent: &Agent,
        path_and_query: String,
        guard: ActivityGuard,
        request: Request,
    ) -> Result<Response, ProxyError> {
        let (parts, body) = request.into_parts();
        let mut headers = headers::for_agent(&parts, &agent.token);
        // An upgrade has no body.
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::EXPECT);
        let tunnel = Tunnel::to(agent.addr, path_and_query)
            .headers(headers)
            .answer_timeout(self.answer_timeout)
            .until(browser_ended(agent.ended.clone()))
            .upstream_gone(|| Close::failed("the connection to the browser is lost"))
            .hold(guard);
        let answer = tunnel
            .open(&mut Request::from_parts(parts, body), &self.shutdown)
            .await;
        answer.map_err(|error| match error {
            TunnelError::NotAnUpgrade => ProxyError::Method,
            TunnelError::Malformed(cause) => ProxyError::Malformed(cause),
            TunnelError::Connect(cause) => ProxyError::Unreachable(cause.into()),
            TunnelError::Broken(cause) => ProxyError::Broken(cause.into()),
            TunnelError::Timeout => ProxyError::Timeout,
        })
    }

    async fn exchange(
        &self,
        agent: &Agent,
        path_and_query: &str,
        guard: ActivityGuard,
        request: Request,
    ) -> Result<Response, ProxyError> {
        let (parts, body) = request.into_parts();
        let progress = Progress::new();
        let outgoing = self.outgoing(
            agent,
            path_and_query,
            &parts,
            Outgoing::new(body, progress.clone()),
        )?;
        let mut answer = tokio::select! {
            answer = self.client.request(outgoing) => answer.map_err(classify)?,
            () = silence(&progress, self.answer_timeout) => return Err(ProxyError::Timeout),
        };
        forward::strip_hop_by_hop(answer.headers_mut());
        answer.extensions_mut().insert(AsItIs);
        Ok(answer.map(|body: Incoming| Body::new(Held::new(body, guard))))
    }

    fn outgoing(
        &self,
        agent: &Agent,
        path_and_query: &str,
        parts: &Parts,
        body: Outgoing<Body>,
    ) -> Result<http::Request<Outgoing<Body>>, ProxyError> {
        let uri = Uri::builder()
            .scheme("http")
            .authority(agent.addr.to_string())
            .path_and_query(path_and_query)
            .build()
            .map_err(ProxyError::Malformed)?;
        let headers = headers::for_agent(parts, &agent.token);
        let expects = headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let mut outgoing = http::Request::new(body);
        *outgoing.method_mut() = parts.method.clone();
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = headers;
        if !expects {
            return Ok(outgoing);
        }
        // The agent says whether it wants the body, not we.
        let wanted = CancellationToken::new();
        let told = wanted.clone();
        let mut outgoing = outgoing.map(|body| body.once(wanted));
        hyper::ext::on_informational(&mut outgoing, move |answer| {
            if answer.status() == StatusCode::CONTINUE {
                told.cancel();
            }
        });
        Ok(outgoing)
    }
}

async fn browser_ended(ended: CancellationToken) -> Close {
    ended.cancelled_owned().await;
    Close::going_away("the browser has ended")
}

/// Other protocols to upgrade to are offers, which a server is free not to take up.
fn asks_for_websocket(request: &Request) -> bool {
    request.method() == Method::GET
        && request
            .extensions()
            .get::<hyper::upgrade::OnUpgrade>()
            .is_some()
        && request
            .headers()
            .get(header::UPGRADE)
            .map(HeaderValue::as_bytes)
            .is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Resolves once the request's body has not moved for `limit`.
async fn silence(progress: &Progress, limit: Duration) {
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
    // The body is the one thing that the client gets from us and may fail.
    let of_body = std::error::Error::source(&error)
        .and_then(|cause| cause.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_user);
    if of_body {
        ProxyError::Body(error.into())
    } else {
        ProxyError::Broken(error.into())
    }
}
