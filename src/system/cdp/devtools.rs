//! Chromium's DevTools over plain HTTP (`/json/…`).

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;

/// More than the list of any number of tabs a browser survives.
const MAX_BODY: usize = 8 * 1024 * 1024;
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum DevtoolsError {
    #[error("DevTools did not answer within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error("DevTools could not be asked: {0}")]
    Connection(String),
    #[error("DevTools answered {0}")]
    Status(StatusCode),
    #[error("DevTools answered what is not expected: {0}")]
    Answer(String),
}

/// `/json/version`, as far as we need it.
#[derive(Debug, Deserialize)]
pub struct Version {
    #[serde(rename = "Browser")]
    pub browser: String,
    #[serde(rename = "webSocketDebuggerUrl")]
    pub browser_url: String,
}

/// A tab.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tab {
    pub id: String,
    pub url: String,
}

/// An entry of `/json/list`.
#[derive(Deserialize)]
struct Target {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    url: String,
}

/// A client which keeps no connection: Chromium's server is asked seldom.
#[derive(Clone, Debug)]
pub struct DevtoolsHttp(Client<HttpConnector, Empty<Bytes>>);

impl Default for DevtoolsHttp {
    fn default() -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        Self(client)
    }
}

impl DevtoolsHttp {
    pub async fn version(&self, addr: SocketAddr) -> Result<Version, DevtoolsError> {
        let (status, body) = self.ask(addr, Method::GET, "/json/version").await?;
        if status != StatusCode::OK {
            return Err(DevtoolsError::Status(status));
        }
        serde_json::from_slice(&body).map_err(|error| DevtoolsError::Answer(error.to_string()))
    }

    /// The tabs, the one used last first.
    pub async fn tabs(&self, addr: SocketAddr) -> Result<Vec<Tab>, DevtoolsError> {
        let (status, body) = self.ask(addr, Method::GET, "/json/list").await?;
        if status != StatusCode::OK {
            return Err(DevtoolsError::Status(status));
        }
        let targets: Vec<Target> = serde_json::from_slice(&body)
            .map_err(|error| DevtoolsError::Answer(error.to_string()))?;
        Ok(targets
            .into_iter()
            .filter(|target| target.kind == "page")
            .map(|target| Tab {
                id: target.id,
                url: target.url,
            })
            .collect())
    }

    /// The answer to `path`, whatever its status.
    pub async fn ask(
        &self,
        addr: SocketAddr,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), DevtoolsError> {
        tokio::time::timeout(DEADLINE, self.exchange(addr, method, path))
            .await
            .map_err(|_| DevtoolsError::Deadline)?
    }

    async fn exchange(
        &self,
        addr: SocketAddr,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), DevtoolsError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{addr}{path}"))
            .header(header::HOST, addr.to_string())
            .body(Empty::new())
            .map_err(|error| DevtoolsError::Connection(error.to_string()))?;
        let answer = self
            .0
            .request(request)
            .await
            .map_err(|error| DevtoolsError::Connection(error.to_string()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BODY)
            .collect()
            .await
            .map_err(|error| DevtoolsError::Answer(error.to_string()))?;
        Ok((status, body.to_bytes()))
    }
}
