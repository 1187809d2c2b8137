//! An HTTP client for the requests of an import to control.

use std::{fs::File, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderValue, Method, Request, StatusCode, header};

use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring::default_provider};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::io::ReaderStream;
use url::Url;

use crate::{api::ErrorBody, error_chain::error_chain};

/// The longest wait for a response to a small request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for an upload and its response.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The most bytes of a response.
const MAX_RESPONSE: usize = 4 << 20;
/// The size of the reads of the archive.
const CHUNK_BYTES: usize = 256 << 10;

/// Why control has not stored the profile.
#[derive(Debug, thiserror::Error)]
pub enum ImportRequestError {
    #[error("cannot use the certificates of the system: {0}")]
    Certificates(io::Error),
    #[error("the API key or the project cannot be sent in a header")]
    Header,
    #[error("control is unreachable: {0}")]
    Unreachable(String),
    #[error("control responded {status}: {message}")]
    Rejected {
        status: StatusCode,
        /// Empty if the response is not in the API's format.
        code: String,
        message: String,
    },
    #[error("control did not respond within {0:?}")]
    Timeout(Duration),
    #[error("invalid response from control: {0}")]
    InvalidResponse(String),
}

type RequestBody = BoxBody<Bytes, io::Error>;

/// A client for one control server.
pub(super) struct ImportClient {
    http: Client<HttpsConnector<HttpConnector>, RequestBody>,
    /// Without a slash at the end.
    base_url: String,
    authorization: HeaderValue,
    project: Option<HeaderValue>,
}

/// The part of a profile's record, or of a receipt, that is printed.
#[derive(Deserialize)]
struct Receipt {
    version: Option<u64>,
}

impl ImportClient {
    /// Returns a client that verifies certificates with the authorities of the system.
    pub(super) fn new(
        url: &Url,
        api_key: &SecretString,
        project: Option<&str>,
    ) -> Result<Self, ImportRequestError> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match url.scheme() {
            "https" => builder.with_provider_and_native_roots(default_provider()),
            // A system without authorities can use http.
            _ => without_authorities().map(|config| builder.with_tls_config(config)),
        };
        let builder = builder.map_err(ImportRequestError::Certificates)?;
        let connector = builder.https_or_http().enable_http1().build();
        let bearer = format!("Bearer {}", api_key.expose_secret());
        let mut authorization =
            HeaderValue::try_from(bearer).map_err(|_| ImportRequestError::Header)?;
        authorization.set_sensitive(true);
        let project = project.map(HeaderValue::from_str).transpose();
        Ok(ImportClient {
            http: Client::builder(TokioExecutor::new()).build(connector),
            base_url: url.as_str().trim_end_matches('/').to_owned(),
            authorization,
            project: project.map_err(|_| ImportRequestError::Header)?,
        })
    }

    /// Creates a profile, unless one of this name exists.
    pub(super) async fn create_profile(&self, name: &str) -> Result<(), ImportRequestError> {
        let body = Full::from(json!({"name": name}).to_string());
        let request = self
            .request(Method::POST, "/profiles")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map_err(|never| match never {}).boxed());
        match self.send(request, REQUEST_TIMEOUT).await {
            Ok(_) => Ok(()),
            Err(ImportRequestError::Rejected { status, code, .. })
                if status == StatusCode::CONFLICT && code == "conflict" =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Uploads an archive, and returns the version that it became if the response has it.
    pub(super) async fn upload(
        &self,
        name: &str,
        archive: File,
        bytes: u64,
    ) -> Result<Option<u64>, ImportRequestError> {
        let file = tokio::fs::File::from_std(archive);
        let chunks = ReaderStream::with_capacity(file, CHUNK_BYTES).map_ok(Frame::data);
        // A name needs no escaping in a URL.
        let request = self
            .request(Method::PUT, &format!("/profiles/{name}/upload"))
            .header(header::CONTENT_TYPE, "application/zstd")
            .header(header::CONTENT_LENGTH, bytes)
            .body(BodyExt::boxed(StreamBody::new(chunks)));
        let response = self.send(request, UPLOAD_TIMEOUT).await?;
        let receipt = serde_json::from_slice::<Receipt>(&response);
        Ok(receipt.ok().and_then(|receipt| receipt.version))
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base_url))
            .header(header::AUTHORIZATION, &self.authorization);
        match &self.project {
            Some(project) => request.header("x-project-id", project),
            None => request,
        }
    }

    async fn send(
        &self,
        request: http::Result<Request<RequestBody>>,
        limit: Duration,
    ) -> Result<Bytes, ImportRequestError> {
        let request =
            request.map_err(|error| ImportRequestError::Unreachable(error.to_string()))?;
        let exchange = timeout(limit, self.exchange(request)).await;
        exchange.map_err(|_| ImportRequestError::Timeout(limit))?
    }

    async fn exchange(&self, request: Request<RequestBody>) -> Result<Bytes, ImportRequestError> {
        let response = self.http.request(request).await;
        let response =
            response.map_err(|error| ImportRequestError::Unreachable(error_chain(&error)))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE).collect();
        let body = body
            .await
            .map_err(|error| ImportRequestError::InvalidResponse(error.to_string()))?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let error = serde_json::from_slice::<ErrorBody>(&body);
        let (code, message) = error
            .map(|error| (error.code, error.message))
            .unwrap_or_default();
        Err(ImportRequestError::Rejected {
            status,
            code,
            message,
        })
    }
}

/// Returns TLS settings that accept no server.
fn without_authorities() -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = builder.with_root_certificates(RootCertStore::empty());
    Ok(builder.with_no_client_auth())
}
