//! The exchange of one request and its response.

use std::{io::ErrorKind, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, response::Parts};
use http_body_util::BodyExt;
use hyper::{body::Incoming, ext::ReasonPhrase};
use hyper_util::client::legacy::connect::HttpInfo;
use tokio::sync::{OnceCell, Semaphore, mpsc};
use url::Url;

use crate::system::{
    outbound::{FetchClient, FetchNetwork, FetchRequest, OutboundError, OutboundSetupError},
    script::worker::{HttpFailure, HttpRequest, HttpResponse, MAX_HTTP_RESPONSE, ToWorker},
};

/// The most headers of a request.
const MAX_HEADERS: usize = 1000;

/// The services and bounds of a request.
pub(super) struct Exchange {
    pub(super) network: FetchNetwork,
    /// Made by the first request of the worker.
    pub(super) client: Arc<OnceCell<FetchClient>>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) to_worker: mpsc::Sender<ToWorker>,
}

/// Why a script's request has no complete response.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error(transparent)]
    Setup(#[from] OutboundSetupError),
    #[error("invalid method")]
    Method,
    #[error("invalid header `{0}`")]
    Header(String),
    #[error("more than {MAX_HEADERS} headers")]
    Headers,
    #[error("the connection was closed before the response was complete")]
    Incomplete,
    #[error("the response has more than {} MiB", MAX_HTTP_RESPONSE >> 20)]
    TooLarge,
    #[error("the script's worker has ended")]
    WorkerEnded,
}

impl ExchangeError {
    /// Returns the code of such an error in Node, on which Playwright decides whether to retry.
    fn code(&self) -> &'static str {
        match self {
            ExchangeError::Outbound(error) => match error {
                OutboundError::InvalidUrl => "EINVAL",
                OutboundError::AddressNotAllowed { .. }
                | OutboundError::OwnAddress { .. }
                | OutboundError::PlainHttpNotAllowed { .. } => "EACCES",
                OutboundError::Resolve { .. } => "ENOTFOUND",
                OutboundError::Connect { reason, .. } => match reason {
                    ErrorKind::ConnectionRefused => "ECONNREFUSED",
                    ErrorKind::HostUnreachable => "EHOSTUNREACH",
                    ErrorKind::NetworkUnreachable => "ENETUNREACH",
                    ErrorKind::TimedOut => "ETIMEDOUT",
                    _ => "ECONNABORTED",
                },
                OutboundError::ConnectTimeout { .. } | OutboundError::Timeout { .. } => "ETIMEDOUT",
                OutboundError::Tls { .. } => "EPROTO",
                OutboundError::Interrupted { .. } => "ECONNRESET",
                OutboundError::TooLarge { .. }
                | OutboundError::CrossOriginRedirect
                | OutboundError::TooManyRedirects { .. } => "EIO",
            },
            ExchangeError::Method | ExchangeError::Header(_) | ExchangeError::Headers => "EINVAL",
            ExchangeError::Incomplete => "ECONNRESET",
            ExchangeError::TooLarge => "EFBIG",
            ExchangeError::Setup(_) | ExchangeError::WorkerEnded => "EIO",
        }
    }
}

impl Exchange {
    /// Performs a request, and sends the response to the worker as it arrives.
    pub(super) async fn perform(self, request: HttpRequest, body: Bytes) {
        let id = request.id;
        let last = match self.exchange(request, body).await {
            Ok(()) => ToWorker::HttpEnd(id),
            Err(error) => ToWorker::HttpFailed(HttpFailure {
                id,
                code: error.code().to_owned(),
                reason: error.to_string(),
            }),
        };
        // Fails if the session has ended.
        let _ = self.to_worker.send(last).await;
    }

    async fn exchange(&self, request: HttpRequest, body: Bytes) -> Result<(), ExchangeError> {
        let id = request.id;
        let request = to_request(request, body)?;
        let _slot = self.slots.acquire().await;
        let client = self.client.get_or_try_init(|| self.network.client());
        let response = client.await?.send(request).await?;
        let (head, body) = response.into_parts();
        self.send(ToWorker::HttpHead(Box::new(response_of(id, &head))))
            .await?;
        self.send_body(id, body).await
    }

    async fn send_body(&self, id: u32, mut body: Incoming) -> Result<(), ExchangeError> {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ExchangeError::Incomplete)?;
            // Trailers are not for scripts.
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            length += bytes.len();
            if length > MAX_HTTP_RESPONSE {
                return Err(ExchangeError::TooLarge);
            }
            self.send(ToWorker::HttpBody(id, bytes)).await?;
        }
        Ok(())
    }

    async fn send(&self, message: ToWorker) -> Result<(), ExchangeError> {
        let sent = self.to_worker.send(message).await;
        sent.map_err(|_| ExchangeError::WorkerEnded)
    }
}

fn to_request(request: HttpRequest, body: Bytes) -> Result<FetchRequest, ExchangeError> {
    let HttpRequest {
        id: _,
        method,
        url,
        headers,
        insecure,
    } = request;
    if headers.len() > MAX_HEADERS {
        return Err(ExchangeError::Headers);
    }
    let mut parsed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let header = HeaderName::try_from(&name).ok().zip(header_value(&value));
        let (name, value) = header.ok_or(ExchangeError::Header(name))?;
        parsed.append(name, value);
    }
    Ok(FetchRequest {
        method: Method::from_bytes(method.as_bytes()).map_err(|_| ExchangeError::Method)?,
        url: Url::parse(&url).map_err(|_| OutboundError::InvalidUrl)?,
        headers: parsed,
        body,
        accepts_any_certificate: insecure,
    })
}

/// Returns the value of a header whose characters stand for bytes.
fn header_value(text: &str) -> Option<HeaderValue> {
    let bytes = text.chars().map(|character| u8::try_from(character).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    HeaderValue::from_bytes(&bytes).ok()
}

fn response_of(id: u32, head: &Parts) -> HttpResponse {
    let headers = head.headers.iter().map(|(name, value)| {
        let value = characters(value.as_bytes());
        (name.as_str().to_owned(), value)
    });
    let reason = match head.extensions.get::<ReasonPhrase>() {
        Some(phrase) => characters(phrase.as_bytes()),
        None => head.status.canonical_reason().unwrap_or("").to_owned(),
    };
    let version = match head.version {
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    HttpResponse {
        id,
        version: version.to_owned(),
        status: head.status.as_u16(),
        reason,
        headers: headers.collect(),
        server: head.extensions.get().map(HttpInfo::remote_addr),
    }
}

/// Returns a text with one character for each byte.
fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_headers_is_bounded() {
        let with_headers = |count: usize| {
            let headers = (0..count).map(|n| (format!("h{n}"), String::new()));
            let request = HttpRequest {
                id: 1,
                method: "GET".to_owned(),
                url: "http://127.0.0.1/".to_owned(),
                headers: headers.collect(),
                insecure: false,
            };
            to_request(request, Bytes::new())
        };
        assert_eq!(with_headers(MAX_HEADERS).unwrap().headers.len(), 1000);
        let error = with_headers(MAX_HEADERS + 1).map(drop).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            ("EINVAL", "more than 1000 headers")
        );
    }
}
