//! The HTTP client for S3-compatible services: TLS by rustls with the certificates of the system,
//! and time limits. Errors keep only the code of a response: services repeat parts of the request
//! in the rest, such as a session token.

use std::{io, time::Duration};

use async_trait::async_trait;
use futures::stream;
use http::{Response, StatusCode, header::CONTENT_RANGE};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as TcpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
        HttpResponse, HttpResponseBody, HttpService,
    },
};
use rustls::crypto::ring;
use tokio::time::timeout;

use crate::error_chain::error_chain;

/// The time in which a connection must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time in which a request must be sent, with its body of up to one part, and its response
/// begin.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time without data while a response is read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of an error response that are read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The longest code of an error.
const MAX_ERROR_CODE: usize = 64;

type Transport = Client<HttpsConnector<TcpConnector>, HttpRequestBody>;

/// Provides the client. Its limits are those of this module.
#[derive(Debug)]
pub(super) struct S3Connector {
    client: Transport,
}

impl S3Connector {
    /// # Errors
    /// Fails if the system has no certificates of authorities.
    pub(super) fn new() -> io::Result<S3Connector> {
        let mut tcp = TcpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let tls =
            HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider())?;
        let connector = tls.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(S3Connector { client })
    }
}

impl HttpConnector for S3Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(S3HttpClient(self.client.clone())))
    }
}

#[derive(Debug)]
struct S3HttpClient(Transport);

#[async_trait]
impl HttpService for S3HttpClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = timeout(RESPONSE_TIMEOUT, self.0.request(request)).await;
        let response = response.map_err(|_| timeout_error("no response", RESPONSE_TIMEOUT))?;
        let (mut parts, body) = response.map_err(to_http_error)?.into_parts();
        // Of rclone's service. The range is compared with the requested one.
        if parts.status == StatusCode::OK && parts.headers.contains_key(CONTENT_RANGE) {
            parts.status = StatusCode::PARTIAL_CONTENT;
        }
        let body = if parts.status.is_client_error() || parts.status.is_server_error() {
            read_error_code(body).await.into()
        } else {
            with_read_timeout(body)
        };
        Ok(Response::from_parts(parts, body))
    }
}

/// Fails a body that has no data for [`READ_TIMEOUT`]. The time between two reads does not
/// count.
fn with_read_timeout(body: Incoming) -> HttpResponseBody {
    let frames = stream::try_unfold(body, async |mut body| {
        match timeout(READ_TIMEOUT, body.frame()).await {
            Err(_) => Err(timeout_error("no data", READ_TIMEOUT)),
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => Ok(Some((frame, body))),
            Ok(Some(Err(error))) => Err(HttpError::new(HttpErrorKind::Interrupted, error)),
        }
    });
    HttpResponseBody::new(StreamBody::new(frames))
}

/// Reads the code from the body of an error response, such as `NoSuchBucket`.
async fn read_error_code(body: Incoming) -> String {
    let body = timeout(READ_TIMEOUT, Limited::new(body, MAX_ERROR_BODY).collect()).await;
    let Ok(Ok(body)) = body else {
        return String::new();
    };
    let body = body.to_bytes();
    error_code(&String::from_utf8_lossy(&body)).to_owned()
}

/// Returns the content of the first `Code` element, or nothing if it is not a code.
fn error_code(body: &str) -> &str {
    let code = body
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"));
    let is_code = |code: &str| {
        code.len() <= MAX_ERROR_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    code.map(|(code, _)| code)
        .filter(|code| is_code(code))
        .unwrap_or_default()
}

fn timeout_error(subject: &str, limit: Duration) -> HttpError {
    let message = format!("{subject} within {} s", limit.as_secs());
    HttpError::new(
        HttpErrorKind::Timeout,
        io::Error::new(io::ErrorKind::TimedOut, message),
    )
}

/// Describes an error with its causes. None of them contains the request.
fn to_http_error(error: hyper_util::client::legacy::Error) -> HttpError {
    let kind = if error.is_connect() {
        HttpErrorKind::Connect
    } else {
        HttpErrorKind::Interrupted
    };
    HttpError::new(kind, io::Error::other(error_chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_response_is_reduced_to_its_code() {
        let body = "<?xml version=\"1.0\"?><Error><Code>InvalidToken</Code><Message>The token is \
            malformed.</Message><Token-0>canary-of-the-token</Token-0></Error>";
        assert_eq!(error_code(body), "InvalidToken");
        for body in [
            "",
            "canary",
            "<html>canary</html>",
            "<Code>canary canary</Code>",
            "<Code>canary",
            &format!("<Code>{}</Code>", "c".repeat(65)),
        ] {
            assert_eq!(error_code(body), "");
        }
    }
}
