//! Requests of scripts: any method, without redirects, with a streamed response.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::{ClientConfig, client::Resumption};
use tokio::{
    sync::{OnceCell, Semaphore},
    task::spawn_blocking,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::{
    OutboundError, OutboundOptions, OutboundSetupError,
    client::{Transport, host_of, to_uri, transport},
    connector::CheckedConnector,
    tls::{accepting_any_certificate, client_config},
};

/// The most connections of a client with verified certificates, and of one without. More wait.
const MAX_CONNECTIONS: usize = 256;
/// The time after which an unused connection is closed. Until then it counts, so that a script
/// which goes from host to host would wait for it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A request.
#[derive(Debug)]
pub struct FetchRequest {
    pub method: Method,
    pub url: Url,
    /// The client frames the message itself: headers about that are not sent.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the server may have any certificate.
    pub accepts_any_certificate: bool,
}

/// The rules of connections and the authorities, which clients share.
#[derive(Clone)]
pub struct FetchNetwork(Arc<Shared>);

impl fmt::Debug for FetchNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchNetwork").finish_non_exhaustive()
    }
}

struct Shared {
    connector: CheckedConnector,
    ca_file: Option<PathBuf>,
    /// Read by the first client.
    tls: OnceCell<ClientConfig>,
}

/// A client with connections and TLS sessions of its own.
pub struct FetchClient {
    verifying: Transport,
    accepting_any: Transport,
    /// Ends the connections, also those that are being established.
    _connections: DropGuard,
}

impl FetchNetwork {
    #[must_use]
    pub fn new(options: OutboundOptions) -> FetchNetwork {
        FetchNetwork(Arc::new(Shared {
            ca_file: options.ca_file.clone(),
            connector: options.into_connector(),
            tls: OnceCell::new(),
        }))
    }

    /// Returns a client that shares no connection with others.
    ///
    /// # Errors
    /// Fails if the file of authorities cannot be used.
    pub async fn client(&self) -> Result<FetchClient, OutboundSetupError> {
        let shared = &self.0;
        let read = async || {
            let ca_file = shared.ca_file.clone();
            let reading = spawn_blocking(move || client_config(ca_file.as_deref()));
            reading.await.map_err(|_| OutboundSetupError::Stopped)?
        };
        let mut tls = shared.tls.get_or_try_init(read).await?.clone();
        tls.resumption = Resumption::default();
        let end = CancellationToken::new();
        let connect = |tls| {
            let connector = CheckedConnector {
                slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
                ..shared.connector.clone()
            };
            transport(tls, connector, IDLE_TIMEOUT, end.clone())
        };
        Ok(FetchClient {
            accepting_any: connect(accepting_any_certificate(tls.clone())),
            verifying: connect(tls),
            _connections: end.drop_guard(),
        })
    }
}

impl FetchClient {
    /// Sends a request, and returns once the head of the response has arrived.
    pub async fn send(&self, request: FetchRequest) -> Result<Response<Incoming>, OutboundError> {
        let FetchRequest {
            method,
            url,
            mut headers,
            body,
            accepts_any_certificate,
        } = request;
        for name in [
            CONNECTION,
            CONTENT_LENGTH,
            TE,
            TRAILER,
            TRANSFER_ENCODING,
            UPGRADE,
        ] {
            headers.remove(name);
        }
        let has_no_content = [
            Method::GET,
            Method::HEAD,
            Method::DELETE,
            Method::OPTIONS,
            Method::TRACE,
            Method::CONNECT,
        ];
        if body.is_empty() && !has_no_content.contains(&method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = to_uri(&url)?;
        *request.headers_mut() = headers;
        let transport = match accepts_any_certificate {
            true => &self.accepting_any,
            false => &self.verifying,
        };
        let response = transport.request(request).await;
        response.map_err(|error| OutboundError::from_transport(&error, host_of(&url)))
    }
}
