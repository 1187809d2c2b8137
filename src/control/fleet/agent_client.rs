//! Talking to a browser's agent.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::{
    api::{ErrorBody, viewport::Viewport},
    request_scope::RequestScope,
};

/// Answers of the routes called here are small; more is not one of ours.
const MAX_ANSWER: usize = 64 * 1024;
/// How much of an agent's refusal is worth a log line.
const MAX_REASON: usize = 512;

/// Why the agent did not do it.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the agent cannot be reached: {0}")]
    Unreachable(String),
    #[error("the agent answered {status}: {}", .error.message)]
    Refused {
        status: StatusCode,
        error: Box<ErrorBody>,
    },
    #[error("the agent did not answer within {0:?}")]
    Late(Duration),
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

impl AgentClient {
    pub fn new() -> AgentClient {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        AgentClient {
            http: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

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

    async fn call(
        &self,
        agent: Agent<'_>,
        (method, path, body): (Method, &str, Option<Value>),
        deadline: Duration,
    ) -> Result<(), AgentError> {
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
        let answer = async {
            let response = self.http.request(request).await;
            let response = response.map_err(|error| AgentError::Unreachable(chain(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER)
                .collect()
                .await
                .map_err(|error| AgentError::Unreachable(error.to_string()))?;
            if status.is_success() {
                return Ok(());
            }
            let error = Box::new(error_in(&body.to_bytes()));
            Err(AgentError::Refused { status, error })
        };
        match tokio::time::timeout(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(AgentError::Late(deadline)),
        }
    }
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
