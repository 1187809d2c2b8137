//! GET and POST requests with bounds.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy::Client, rt::TokioTimer};
use nix::unistd::Uid;
use rustls::ClientConfig;
use secrecy::zeroize::Zeroizing;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    AddressPolicy, HostResolver, OutboundError, OutboundSetupError, SystemResolver,
    connector::CheckedConnector, tls::client_config,
};

/// The time in which a name must be resolved and a connection established. The TLS handshake counts
/// for the time of the request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most idle connections to one host.
const MAX_IDLE_CONNECTIONS: usize = 8;
/// The most connections at once.
const MAX_CONNECTIONS: usize = 1024;
/// The most redirects of one request.
const MAX_REDIRECTS: usize = 3;
/// The name of this client.
const USER_AGENT_NAME: &str = concat!("berth/", env!("CARGO_PKG_VERSION"));

pub(super) type Transport = Client<HttpsConnector<CheckedConnector>, Full<Bytes>>;

/// The settings of a client.
pub struct OutboundOptions {
    pub policy: AddressPolicy,
    /// A file of PEM with authorities that are accepted besides those of the system.
    pub ca_file: Option<PathBuf>,
    pub resolver: Arc<dyn HostResolver>,
    pub connect_timeout: Duration,
    /// The address at which this program listens, and which is not connected to.
    pub own_address: Option<SocketAddr>,
    /// The user that the sockets belong to, for the rules of the firewall. Needs root.
    pub socket_user: Option<Uid>,
}

impl Default for OutboundOptions {
    fn default() -> Self {
        OutboundOptions {
            policy: AddressPolicy::default(),
            ca_file: None,
            resolver: Arc::new(SystemResolver::default()),
            connect_timeout: CONNECT_TIMEOUT,
            own_address: None,
            socket_user: None,
        }
    }
}

impl OutboundOptions {
    pub(super) fn into_connector(self) -> CheckedConnector {
        CheckedConnector {
            policy: Arc::new(self.policy),
            resolver: self.resolver,
            connect_timeout: self.connect_timeout,
            own_address: self.own_address,
            socket_user: self.socket_user,
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }
}

/// Spawns the tasks of connections until `end`.
#[derive(Clone)]
struct Tasks {
    end: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.end.clone().run_until_cancelled_owned(task));
    }
}

/// Returns a client with connections of its own.
/// Its tasks end with `end`.
pub(super) fn transport(
    tls: ClientConfig,
    tcp: CheckedConnector,
    idle_timeout: Duration,
    end: CancellationToken,
) -> Transport {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Client::builder(Tasks { end })
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_timeout)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .build(connector)
}

/// A GET request.
#[derive(Clone, Copy)]
pub struct OutboundRequest<'a> {
    pub url: &'a Url,
    /// Sent with redirected requests too, which have the same origin.
    pub headers: &'a HeaderMap,
    /// The most bytes of the body of the response.
    pub max_bytes: usize,
    /// The time for the request with its redirects, until the last byte of the response.
    pub timeout: Duration,
}

/// A POST request.
#[derive(Clone)]
pub struct OutboundPost<'a> {
    pub url: &'a Url,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    /// The most bytes of the body of the response that are read.
    pub max_bytes: usize,
    /// The time for the request and the response.
    pub timeout: Duration,
}

/// A response.
pub struct OutboundResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The body of a successful response to GET, otherwise nothing. The first bytes of any response
    /// to POST.
    pub body: Zeroizing<Vec<u8>>,
}

/// An HTTP client for addresses that users configure. Clones share its connections.
#[derive(Clone)]
pub struct OutboundClient {
    http: Transport,
}

impl OutboundClient {
    /// Reads the certificates of authorities, which blocks.
    ///
    /// # Errors
    /// Fails if the file of authorities cannot be used.
    pub fn new(options: OutboundOptions) -> Result<OutboundClient, OutboundSetupError> {
        let tls = client_config(options.ca_file.as_deref())?;
        let tcp = options.into_connector();
        let http = transport(tls, tcp, IDLE_TIMEOUT, CancellationToken::new());
        Ok(OutboundClient { http })
    }

    /// Sends a GET request, and follows redirects within its origin.
    pub async fn get(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundResponse, OutboundError> {
        let limit = request.timeout;
        let exchange = timeout(limit, self.exchange(request)).await;
        exchange.unwrap_or(Err(OutboundError::Timeout { limit }))
    }

    /// Sends a POST request, and follows no redirect. Once the head of the response has arrived,
    /// the request has succeeded: the body is read as far as there are time and bytes left for it.
    pub async fn post(&self, request: OutboundPost<'_>) -> Result<OutboundResponse, OutboundError> {
        let OutboundPost {
            url,
            headers,
            body,
            max_bytes,
            timeout: limit,
        } = request;
        let deadline = Instant::now() + limit;
        let sending = self.send(Method::POST, url, headers, body);
        let sent = timeout_at(deadline, sending).await;
        let response = sent.unwrap_or(Err(OutboundError::Timeout { limit }))?;
        let (parts, body) = response.into_parts();
        let mut bytes = Zeroizing::new(Vec::new());
        let reading = read_beginning(body, max_bytes, &mut bytes);
        // The status decides, also if the body is too slow.
        let _ = timeout_at(deadline, reading).await;
        Ok(OutboundResponse {
            status: parts.status,
            headers: parts.headers,
            body: bytes,
        })
    }

    async fn exchange(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundResponse, OutboundError> {
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let sending = self.send(Method::GET, &url, request.headers, Bytes::new());
            let response = sending.await?;
            match redirect_target(&response, &url)? {
                Some(target) => url = target,
                None => return read(response, host_of(&url), request.max_bytes).await,
            }
        }
        let limit = MAX_REDIRECTS;
        Err(OutboundError::TooManyRedirects { limit })
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, OutboundError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = to_uri(url)?;
        *request.headers_mut() = headers.clone();
        let user_agent = HeaderValue::from_static(USER_AGENT_NAME);
        request.headers_mut().insert(USER_AGENT, user_agent);
        let response = self.http.request(request).await;
        response.map_err(|error| OutboundError::from_transport(&error, host_of(url)))
    }
}

pub(super) fn host_of(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// Returns the URL of a request.
pub(super) fn to_uri(url: &Url) -> Result<Uri, OutboundError> {
    let is_valid = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none();
    let text = url.as_str();
    let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
    let uri = without_fragment.parse();
    uri.ok()
        .filter(|_| is_valid)
        .ok_or(OutboundError::InvalidUrl)
}

/// Returns the URL that a response redirects to, if it does.
fn redirect_target<B>(response: &Response<B>, url: &Url) -> Result<Option<Url>, OutboundError> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION);
    let Some(location) = location.filter(|_| is_redirect) else {
        return Ok(None);
    };
    let target = location.to_str().ok().and_then(|text| url.join(text).ok());
    match target {
        Some(target) if target.origin() == url.origin() => Ok(Some(target)),
        _ => Err(OutboundError::CrossOriginRedirect),
    }
}

/// Reads the body of a successful response.
async fn read(
    response: Response<Incoming>,
    host: &str,
    limit: usize,
) -> Result<OutboundResponse, OutboundError> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = Zeroizing::new(Vec::new());
    if parts.status.is_success() {
        let too_large = OutboundError::TooLarge { limit };
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > limit {
            return Err(too_large);
        }
        bytes.reserve_exact(announced);
        while let Some(frame) = body.frame().await {
            let host = host.to_owned();
            let frame = frame.map_err(|_| OutboundError::Interrupted { host })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > limit {
                return Err(too_large);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(OutboundResponse {
        status: parts.status,
        headers: parts.headers,
        body: bytes,
    })
}

/// Reads up to `limit` bytes of a body, until it ends or fails.
async fn read_beginning(mut body: Incoming, limit: usize, bytes: &mut Vec<u8>) {
    while bytes.len() < limit {
        let Some(Ok(frame)) = body.frame().await else {
            return;
        };
        if let Ok(data) = frame.into_data() {
            let end = data.len().min(limit - bytes.len());
            bytes.extend_from_slice(&data[..end]);
        }
    }
}
