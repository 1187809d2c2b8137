//! A client of Chromium's DevTools HTTP endpoints (`/json/…`).

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;

/// The largest response body in bytes, above the list of as many tabs as a browser can hold.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum DevtoolsError {
    #[error("DevTools did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    #[error("cannot connect to DevTools: {0}")]
    Connection(String),
    #[error("DevTools responded with {0}")]
    Status(StatusCode),
    #[error("invalid response from DevTools: {0}")]
    InvalidResponse(String),
}

/// The used fields of `/json/version`.
#[derive(Debug, Deserialize)]
pub struct Version {
    #[serde(rename = "Browser")]
    pub browser: String,
    #[serde(rename = "webSocketDebuggerUrl")]
    pub browser_url: String,
}

/// An open tab.
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

/// A client that keeps no idle connections, because requests are rare.
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
    /// Returns Chromium's version.
    pub async fn version(&self, addr: SocketAddr) -> Result<Version, DevtoolsError> {
        let (status, body) = self.request(addr, Method::GET, "/json/version").await?;
        if status != StatusCode::OK {
            return Err(DevtoolsError::Status(status));
        }
        serde_json::from_slice(&body)
            .map_err(|error| DevtoolsError::InvalidResponse(error.to_string()))
    }

    /// Returns the tabs, the most recently used one first.
    pub async fn tabs(&self, addr: SocketAddr) -> Result<Vec<Tab>, DevtoolsError> {
        let (status, body) = self.request(addr, Method::GET, "/json/list").await?;
        if status != StatusCode::OK {
            return Err(DevtoolsError::Status(status));
        }
        let targets: Vec<Target> = serde_json::from_slice(&body)
            .map_err(|error| DevtoolsError::InvalidResponse(error.to_string()))?;
        Ok(targets
            .into_iter()
            .filter(|target| target.kind == "page")
            .map(|target| Tab {
                id: target.id,
                url: target.url,
            })
            .collect())
    }

    /// Requests `path`, and returns the response with any status.
    pub async fn request(
        &self,
        addr: SocketAddr,
        method: Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), DevtoolsError> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(addr, method, path))
            .await
            .map_err(|_| DevtoolsError::Timeout)?
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
        let response = self
            .0
            .request(request)
            .await
            .map_err(|error| DevtoolsError::Connection(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY)
            .collect()
            .await
            .map_err(|error| DevtoolsError::InvalidResponse(error.to_string()))?;
        Ok((status, body.to_bytes()))
    }
}
