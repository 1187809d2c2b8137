//! Talking to a browser's agent.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyDataStream, BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::{
    api::{ErrorBody, ids::ReplayId, replays::Replay, viewport::Viewport},
    request_scope::RequestScope,
};

/// Answers of the routes called here are small, but for files; more is not one of ours.
const MAX_ANSWER: usize = 1 << 20;
/// How long a body that an agent sends may stand still.
const STANDSTILL: Duration = Duration::from_secs(30);
/// How much of an agent's refusal is worth a log line.
const MAX_REASON: usize = 512;

/// Why the agent did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the agent cannot be base_url: {0}")]
    Unreachable(String),
    #[error("the agent answered {status}: {}", .error.message)]
    Refused {
        status: StatusCode,
        error: Box<ErrorBody>,
    },
    #[error("the agent did not answer within {0:?}")]
    Timeout(Duration),
    #[error("the agent's answer was not understood: {0}")]
    InvalidResponse(String),
}

impl AgentError {
    /// The fields it tells about, named as they were in the request that led to the agent's.
    fn at(mut self, name: impl Fn(&str) -> String) -> Self {
        if let AgentError::Refused { error, .. } = &mut self {
            for detail in &mut error.details {
                detail.code = name(&detail.code);
            }
        }
        self
    }
}

/// Which agent, and what opens it.
#[derive(Clone, Copy)]
pub struct Agent<'a> {
    pub address: SocketAddr,
    pub token: &'a SecretString,
}

/// A client of all local agents; clones share its connections.
#[derive(Clone)]
pub struct AgentClient {
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Default for AgentClient {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        AgentClient {
            http: Client::builder(TokioExecutor::new()).build(connector),
        }
    }
}

impl AgentClient {
    /// Returns once the browser's DevTools answer.
    pub async fn wait_ready(&self, agent: Agent<'_>, deadline: Duration) -> Result<(), AgentError> {
        let request = (Method::GET, "/json/version", None);
        self.call(agent, request, deadline).await
    }

    pub async fn set_viewport(
        &self,
        agent: Agent<'_>,
        viewport: Viewport,
        deadline: Duration,
    ) -> Result<(), AgentError> {
        let request = (Method::PUT, "/display", Some(json!(viewport)));
        let answer = self.call(agent, request, deadline).await;
        answer.map_err(|error| error.at(|field| format!("viewport.{field}")))
    }

    pub async fn set_start_url(
        &self,
        agent: Agent<'_>,
        url: &str,
        deadline: Duration,
    ) -> Result<(), AgentError> {
        let request = (
            Method::PUT,
            "/chromium/start_url",
            Some(json!({ "url": url })),
        );
        let answer = self.call(agent, request, deadline).await;
        answer.map_err(|error| error.at(|_| "start_url".to_owned()))
    }

    pub async fn replays(
        &self,
        agent: Agent<'_>,
        deadline: Duration,
    ) -> Result<Vec<Replay>, AgentError> {
        let request = (Method::GET, "/replays", None);
        let answer = self.ask(agent, request, deadline).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| AgentError::InvalidResponse(error.to_string()))
    }

    pub async fn stop_replay(
        &self,
        agent: Agent<'_>,
        id: &ReplayId,
        deadline: Duration,
    ) -> Result<(), AgentError> {
        let path = format!("/replays/{id}/stop");
        self.call(agent, (Method::POST, &path, None), deadline)
            .await
    }

    /// One that is not there is removed.
    pub async fn discard_replay(
        &self,
        agent: Agent<'_>,
        id: &ReplayId,
        deadline: Duration,
    ) -> Result<(), AgentError> {
        let path = format!("/replays/{id}");
        let request = (Method::DELETE, &path[..], None);
        match self.call(agent, request, deadline).await {
            Err(AgentError::Refused { status, .. }) if status == StatusCode::NOT_FOUND => Ok(()),
            answer => answer,
        }
    }

    /// The size of a recording's file and what it holds; `deadline` is for the beginning of the answer.
    pub async fn fetch_replay(
        &self,
        agent: Agent<'_>,
        id: &ReplayId,
        deadline: Duration,
    ) -> Result<(u64, BoxStream<'static, Result<Bytes, AgentError>>), AgentError> {
        let path = format!("/replays/{id}");
        let sent = self.send(agent, (Method::GET, &path, None));
        let response = in_time(deadline, sent).await?;
        let status = response.status();
        let length = response.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if let (StatusCode::OK, Some(length)) = (status, length) {
            return Ok((length, chunks(response.into_body())));
        }
        in_time(deadline, read(response)).await?;
        let strange = format!("{status} without a file");
        Err(AgentError::InvalidResponse(strange))
    }

    async fn call(
        &self,
        agent: Agent<'_>,
        request: (Method, &str, Option<Value>),
        deadline: Duration,
    ) -> Result<(), AgentError> {
        self.ask(agent, request, deadline).await.map(|_| ())
    }

    async fn ask(
        &self,
        agent: Agent<'_>,
        request: (Method, &str, Option<Value>),
        deadline: Duration,
    ) -> Result<Bytes, AgentError> {
        let answer = async { read(self.send(agent, request).await?).await };
        in_time(deadline, answer).await
    }

    async fn send(
        &self,
        agent: Agent<'_>,
        (method, path, body): (Method, &str, Option<Value>),
    ) -> Result<Response<Incoming>, AgentError> {
        let token = agent.token.expose_secret();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", agent.address))
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        if let Some(scope) = RequestScope::current() {
            request = request
                .header("x-request-id", scope.request_id)
                .header("traceparent", scope.traceparent);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request
            .body(Full::from(body))
            .map_err(|error| AgentError::Unreachable(error.to_string()))?;
        let response = self.http.request(request).await;
        response.map_err(|error| AgentError::Unreachable(chain(&error)))
    }
}

async fn in_time<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, AgentError>>,
) -> Result<T, AgentError> {
    match tokio::time::timeout(deadline, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(AgentError::Timeout(deadline)),
    }
}

/// The body of an answer that is no refusal.
async fn read(response: Response<Incoming>) -> Result<Bytes, AgentError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| AgentError::Unreachable(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let error = Box::new(error_in(&body));
    Err(AgentError::Refused { status, error })
}

fn chunks(body: Incoming) -> BoxStream<'static, Result<Bytes, AgentError>> {
    let body = BodyDataStream::new(body);
    futures::stream::try_unfold(body, async |mut body| {
        let next = tokio::time::timeout(STANDSTILL, body.next()).await;
        match next.map_err(|_| AgentError::Timeout(STANDSTILL))? {
            Some(Ok(chunk)) => Ok(Some((chunk, body))),
            Some(Err(error)) => Err(AgentError::Unreachable(chain(&error))),
            None => Ok(None),
        }
    })
    .boxed()
}

/// An error in our shape, else one with the start of whatever came.
fn error_in(body: &[u8]) -> ErrorBody {
    serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
        code: String::new(),
        message: String::from_utf8_lossy(body)
            .chars()
            .take(MAX_REASON)
            .collect(),
        details: Vec::new(),
        inner_error: None,
    })
}

/// An error with its causes; the client's own text alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
