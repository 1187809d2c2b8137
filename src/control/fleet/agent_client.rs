//! An HTTP client for control's own requests to agents.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{
    HeaderName, Method, Request, Response, StatusCode, header, request::Builder, uri::Scheme,
};
use http_body_util::{
    BodyDataStream, BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody,
};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    agent_connections::{agent_client_builder, local_connector},
    host_connector::{HostConnector, host_authority, host_connector},
};
use crate::{
    api::{
        ErrorBody,
        agent::Health,
        ids::{HostId, ReplayId},
        replays::Replay,
        session::SessionReceipt,
        viewport::Viewport,
    },
    error_chain::error_chain,
    request_scope::RequestScope,
};

/// The most bytes of a response other than a file. Larger ones are not from an agent.
const MAX_RESPONSE: usize = 1 << 20;
/// The longest pause in the transfer of a file.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The most characters of an unknown error response that are logged.
const MAX_ERROR_TEXT: usize = 512;

/// Why a request to an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the agent is unreachable: {0}")]
    Unreachable(String),
    #[error("the agent responded {status}: {}", .error.message)]
    Rejected {
        status: StatusCode,
        error: Box<ErrorBody>,
    },
    #[error("the agent did not respond within {0:?}")]
    Timeout(Duration),
    #[error("invalid response from the agent: {0}")]
    InvalidResponse(String),
}

impl AgentError {
    /// Returns whether the agent does not know what was asked for.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, AgentError::Rejected { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// Returns whether the agent may have done what was asked for. Its own errors, but for that of
    /// a defect, say that it has not.
    #[must_use]
    pub fn may_follow_effects(&self) -> bool {
        match self {
            AgentError::Rejected { status, .. } => *status == StatusCode::INTERNAL_SERVER_ERROR,
            AgentError::Unreachable(_)
            | AgentError::Timeout(_)
            | AgentError::InvalidResponse(_) => true,
        }
    }

    /// Renames the fields in the error details to their names in the client's request.
    fn with_field_names(mut self, name: impl Fn(&str) -> String) -> Self {
        if let AgentError::Rejected { error, .. } = &mut self {
            for detail in &mut error.details {
                detail.code = name(&detail.code);
            }
        }
        self
    }
}

/// The header that names the session of the agent which a request is for.
pub const GENERATION: HeaderName = HeaderName::from_static("berth-generation");

/// The address of an agent, and how it and control authenticate each other.
#[derive(Clone)]
pub struct AgentEndpoint {
    pub address: SocketAddr,
    pub access: AgentAccess,
    /// The session that a request is for. The agent rejects it in another one.
    pub generation: Option<u64>,
}

/// The authentication between control and an agent.
#[derive(Clone)]
pub enum AgentAccess {
    /// The bearer token of an agent on this machine.
    Token(SecretString),
    /// TLS with the certificates of control and of this registered host. Needs a client of
    /// [`AgentClient::for_registered_hosts`].
    Certificate(HostId),
}

impl AgentEndpoint {
    /// Returns the scheme and the authority of the agent's URLs.
    pub fn origin(&self) -> (Scheme, String) {
        match &self.access {
            AgentAccess::Token(_) => (Scheme::HTTP, self.address.to_string()),
            AgentAccess::Certificate(id) => (Scheme::HTTPS, host_authority(id, self.address)),
        }
    }
}

/// An HTTP client for all agents. Clones share its connections.
#[derive(Clone)]
pub struct AgentClient {
    plain: Client<HttpConnector, RequestBody>,
    /// Absent in a client for agents on this machine.
    tls: Option<Client<HostConnector, RequestBody>>,
}

/// The body of a request to an agent.
type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

impl Default for AgentClient {
    fn default() -> Self {
        AgentClient {
            plain: agent_client_builder().build(local_connector()),
            tls: None,
        }
    }
}

impl AgentClient {
    /// Returns a client that also reaches registered hosts, with control's certificate.
    #[must_use]
    pub fn for_registered_hosts(tls: ClientConfig) -> AgentClient {
        AgentClient {
            tls: Some(agent_client_builder().build(host_connector(tls))),
            ..AgentClient::default()
        }
    }

    /// Returns when the browser's DevTools respond.
    pub async fn wait_ready(
        &self,
        agent: &AgentEndpoint,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let request = (Method::GET, "/json/version", None);
        self.call(agent, request, timeout).await
    }

    /// Changes the size of the display.
    pub async fn set_viewport(
        &self,
        agent: &AgentEndpoint,
        viewport: Viewport,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let request = (Method::PUT, "/display", Some(json!(viewport)));
        let response = self.call(agent, request, timeout).await;
        response.map_err(|error| error.with_field_names(|field| format!("viewport.{field}")))
    }

    /// Restarts the browser and returns when its DevTools respond.
    pub async fn restart_browser(
        &self,
        agent: &AgentEndpoint,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let request = (Method::POST, "/chromium/restart", None);
        self.call(agent, request, timeout).await
    }

    /// Changes the page that Chromium opens when it starts.
    pub async fn set_start_url(
        &self,
        agent: &AgentEndpoint,
        url: &str,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let request = (
            Method::PUT,
            "/chromium/start_url",
            Some(json!({ "url": url })),
        );
        let response = self.call(agent, request, timeout).await;
        response.map_err(|error| error.with_field_names(|_| "start_url".to_owned()))
    }

    /// Ends the session of a generation. A repeated call returns the same receipt.
    pub async fn end_session(
        &self,
        agent: &AgentEndpoint,
        generation: u64,
        timeout: Duration,
    ) -> Result<SessionReceipt, AgentError> {
        let body = json!({ "generation": generation });
        let request = (Method::POST, "/session/end", Some(body));
        let response = self.exchange(agent, request, timeout).await?;
        parse(&response)
    }

    /// Makes the session of a generation end, and returns when no request reaches it any more.
    pub async fn refuse_session(
        &self,
        agent: &AgentEndpoint,
        generation: u64,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let body = json!({ "generation": generation, "wait": false });
        let request = (Method::POST, "/session/end", Some(body));
        self.call(agent, request, timeout).await
    }

    /// Returns the status of the agent.
    pub async fn health(
        &self,
        agent: &AgentEndpoint,
        timeout: Duration,
    ) -> Result<Health, AgentError> {
        let response = self.exchange(agent, (Method::GET, "/health", None), timeout);
        parse(&response.await?)
    }

    /// Returns the size of the display.
    pub async fn viewport(
        &self,
        agent: &AgentEndpoint,
        timeout: Duration,
    ) -> Result<Viewport, AgentError> {
        Ok(self.health(agent, timeout).await?.display.viewport)
    }

    /// Lists the recordings below `path`, which is that of the current session's or of an ended
    /// session's.
    pub async fn replays(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        timeout: Duration,
    ) -> Result<Vec<Replay>, AgentError> {
        let request = (Method::GET, path, None);
        let response = self.exchange(agent, request, timeout).await?;
        parse(&response)
    }

    /// Stops a recording of the current session.
    pub async fn stop_replay(
        &self,
        agent: &AgentEndpoint,
        id: &ReplayId,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let path = format!("/replays/{id}/stop");
        self.call(agent, (Method::POST, &path, None), timeout).await
    }

    /// Removes the finished recording at `path`. Succeeds if it does not exist.
    pub async fn discard_replay(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let request = (Method::DELETE, path, None);
        match self.call(agent, request, timeout).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result,
        }
    }

    /// Returns the size and the content of the recording at `path`. `timeout` bounds only the wait
    /// for the head of the response.
    pub async fn fetch_replay(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        timeout: Duration,
    ) -> Result<(u64, BoxStream<'static, Result<Bytes, AgentError>>), AgentError> {
        let sent = self.send(agent, (Method::GET, path, None));
        let response = within(timeout, sent).await?;
        let status = response.status();
        let length = response.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let (StatusCode::OK, Some(length)) = (status, length) {
            return Ok((length, chunks(response.into_body())));
        }
        within(timeout, read_body(response)).await?;
        let reason = format!("{status} without a file");
        Err(AgentError::InvalidResponse(reason))
    }

    /// Returns the archive of the browser's user data, of the running browser if `live` is set.
    /// Otherwise it is closed, and stays so. `timeout` bounds only the wait for the head.
    pub async fn archive_user_data(
        &self,
        agent: &AgentEndpoint,
        live: bool,
        timeout: Duration,
    ) -> Result<BoxStream<'static, Result<Bytes, AgentError>>, AgentError> {
        let path = format!("/user_data?live={live}&restart={live}");
        let sent = self.send(agent, (Method::GET, &path, None));
        let response = within(timeout, sent).await?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(chunks(response.into_body()));
        }
        within(timeout, read_body(response)).await?;
        let reason = format!("{status} without an archive");
        Err(AgentError::InvalidResponse(reason))
    }

    /// Replaces the browser's user data by the content of an archive.
    pub async fn restore_user_data(
        &self,
        agent: &AgentEndpoint,
        archive: BoxStream<'static, io::Result<Bytes>>,
        timeout: Duration,
    ) -> Result<(), AgentError> {
        let body = RequestBody::new(StreamBody::new(archive.map_ok(Frame::data)));
        let request = request_builder(agent, &Method::PUT, "/user_data")
            .header(header::CONTENT_TYPE, "application/zstd");
        let response = async { read_body(self.send_body(agent, request, body).await?).await };
        within(timeout, response).await.map(drop)
    }

    /// Sends a request with a body of JSON.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<T, AgentError> {
        parse(&self.post_bytes(agent, path, body, timeout).await?)
    }

    /// Does the same for any response.
    pub(super) async fn post_bytes(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, AgentError> {
        let request = request_builder(agent, &Method::POST, path)
            .header(header::CONTENT_TYPE, "application/json");
        let body = RequestBody::new(Full::from(body).map_err(|never| match never {}));
        let response = async { read_body(self.send_body(agent, request, body).await?).await };
        within(timeout, response).await
    }

    /// Sends a request without a body.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        agent: &AgentEndpoint,
        path: &str,
        timeout: Duration,
    ) -> Result<T, AgentError> {
        let response = self.exchange(agent, (Method::GET, path, None), timeout);
        parse(&response.await?)
    }

    async fn call(
        &self,
        agent: &AgentEndpoint,
        request: (Method, &str, Option<Value>),
        timeout: Duration,
    ) -> Result<(), AgentError> {
        self.exchange(agent, request, timeout).await.map(|_| ())
    }

    async fn exchange(
        &self,
        agent: &AgentEndpoint,
        request: (Method, &str, Option<Value>),
        timeout: Duration,
    ) -> Result<Bytes, AgentError> {
        let response = async { read_body(self.send(agent, request).await?).await };
        within(timeout, response).await
    }

    async fn send(
        &self,
        agent: &AgentEndpoint,
        (method, path, body): (Method, &str, Option<Value>),
    ) -> Result<Response<Incoming>, AgentError> {
        let mut request = request_builder(agent, &method, path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let body = Full::from(body).map_err(|never| match never {});
        let body = RequestBody::new(body);
        self.send_body(agent, request, body).await
    }

    async fn send_body(
        &self,
        agent: &AgentEndpoint,
        request: Builder,
        body: RequestBody,
    ) -> Result<Response<Incoming>, AgentError> {
        let request = request
            .body(body)
            .map_err(|error| AgentError::Unreachable(error.to_string()))?;
        let response = match (&self.tls, &agent.access) {
            (Some(client), AgentAccess::Certificate(_)) => client.request(request).await,
            // Without control's certificate, `https` is an error of the connector.
            _ => self.plain.request(request).await,
        };
        response.map_err(|error| AgentError::Unreachable(error_chain(&error)))
    }
}

/// Returns a request without a body.
fn request_builder(agent: &AgentEndpoint, method: &Method, path: &str) -> Builder {
    let (scheme, authority) = agent.origin();
    let mut request = Request::builder()
        .method(method)
        .uri(format!("{scheme}://{authority}{path}"));
    if let AgentAccess::Token(token) = &agent.access {
        let token = token.expose_secret();
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(generation) = agent.generation {
        request = request.header(GENERATION, generation);
    }
    if let Some(scope) = RequestScope::current() {
        request = request
            .header("x-request-id", scope.request_id)
            .header("traceparent", scope.traceparent);
    }
    request
}

fn parse<T: DeserializeOwned>(response: &[u8]) -> Result<T, AgentError> {
    serde_json::from_slice(response).map_err(|error| AgentError::InvalidResponse(error.to_string()))
}

async fn within<T>(
    timeout: Duration,
    response: impl Future<Output = Result<T, AgentError>>,
) -> Result<T, AgentError> {
    match tokio::time::timeout(timeout, response).await {
        Ok(response) => response,
        Err(_) => Err(AgentError::Timeout(timeout)),
    }
}

/// Reads the body of a successful response.
async fn read_body(response: Response<Incoming>) -> Result<Bytes, AgentError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE)
        .collect()
        .await
        .map_err(|error| AgentError::Unreachable(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let error = Box::new(parse_error(&body));
    Err(AgentError::Rejected { status, error })
}

fn chunks(body: Incoming) -> BoxStream<'static, Result<Bytes, AgentError>> {
    let body = BodyDataStream::new(body);
    futures::stream::try_unfold(body, async |mut body| {
        let next = tokio::time::timeout(STALL_TIMEOUT, body.next()).await;
        match next.map_err(|_| AgentError::Timeout(STALL_TIMEOUT))? {
            Some(Ok(chunk)) => Ok(Some((chunk, body))),
            Some(Err(error)) => Err(AgentError::Unreachable(error_chain(&error))),
            None => Ok(None),
        }
    })
    .boxed()
}

/// Parses an error response. Returns the start of the body if it is not in the API's format.
fn parse_error(body: &[u8]) -> ErrorBody {
    serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
        code: String::new(),
        message: String::from_utf8_lossy(body)
            .chars()
            .take(MAX_ERROR_TEXT)
            .collect(),
        details: Vec::new(),
        inner_error: None,
    })
}
