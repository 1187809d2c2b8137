//! An HTTP server on loopback that responds as a test scripts it, and records its requests.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::Notify,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;
use url::Url;

type ReplyBody = BoxBody<Bytes, Infallible>;
type Script = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

/// A request that the server has received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    /// The path with the query, as it was sent.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The response to a request.
pub(crate) enum Reply {
    Json(Value),
    Text(&'static str),
    Bytes(Vec<u8>),
    Status(u16),
    /// A status with one header.
    Header(u16, header::HeaderName, String),
    /// A status with a body of text.
    Failure(u16, &'static str),
    /// No response, until the connection is closed.
    Hang,
    /// A status, once there is a notification.
    After(Arc<Notify>, u16),
    /// A body without a length that does not end.
    Endless,
    /// A status with the beginning of a body, of which the rest does not arrive.
    Partial(u16, &'static str),
    /// The connection is closed without a response.
    Close,
}

/// The server. It stops when it is dropped.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
    /// The certificate of a server with TLS, in PEM.
    pub(crate) certificate: String,
}

impl ScriptedServer {
    /// Starts a server without TLS.
    pub(crate) async fn start(
        script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> ScriptedServer {
        Self::listen(Arc::new(script), None, String::new()).await
    }

    /// Starts a server with a certificate for `name` that it has signed itself.
    pub(crate) async fn start_tls(
        name: &str,
        script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> ScriptedServer {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let private = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::listen(Arc::new(script), Some(acceptor), certificate.pem()).await
    }

    async fn listen(
        script: Arc<Script>,
        tls: Option<TlsAcceptor>,
        certificate: String,
    ) -> ScriptedServer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, tls, recorded) = (script.clone(), tls.clone(), recorded.clone());
                connections.spawn(async move {
                    let Some(tls) = tls else {
                        return serve(TokioIo::new(stream), &script, &recorded).await;
                    };
                    // The client may refuse the certificate.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(TokioIo::new(stream), &script, &recorded).await;
                    }
                });
            }
        });
        ScriptedServer {
            address,
            scheme,
            requests,
            task,
            certificate,
        }
    }

    /// Returns the base URL, with the address as its host.
    pub(crate) fn url(&self) -> Url {
        self.url_with_host("127.0.0.1")
    }

    /// Returns the base URL with another host.
    pub(crate) fn url_with_host(&self, host: &str) -> Url {
        let port = self.address.port();
        format!("{}://{host}:{port}/", self.scheme).parse().unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Returns the targets of all requests.
    pub(crate) fn targets(&self) -> Vec<String> {
        let requests = self.requests();
        requests.into_iter().map(|request| request.target).collect()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<S: Read + Write + Unpin + Send + 'static>(
    stream: S,
    script: &Arc<Script>,
    recorded: &Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (script, recorded) = (script.clone(), recorded.clone());
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await else {
                return Err("interrupted by the client");
            };
            let received = ReceivedRequest {
                target: parts.uri.to_string(),
                headers: parts.headers,
                body: body.to_bytes(),
            };
            recorded.lock().push(received.clone());
            match script(&received) {
                Reply::Hang => std::future::pending().await,
                Reply::After(notify, status) => {
                    notify.notified().await;
                    Ok(to_response(Reply::Status(status)))
                }
                Reply::Close => Err("closed by the script"),
                reply => Ok(to_response(reply)),
            }
        }
    });
    // Clients close connections at any time.
    let _ = http1::Builder::new()
        .serve_connection(stream, service)
        .await;
}

fn to_response(reply: Reply) -> Response<ReplyBody> {
    let (status, body) = match reply {
        Reply::Json(value) => (200, Full::from(value.to_string()).boxed()),
        Reply::Text(text) => (200, Full::from(text).boxed()),
        Reply::Bytes(bytes) => (200, Full::from(bytes).boxed()),
        Reply::Failure(status, text) => (status, Full::from(text).boxed()),
        Reply::Endless => (200, endless()),
        Reply::Partial(status, text) => (status, partial(text)),
        Reply::Header(status, name, value) => {
            let mut response = to_response(Reply::Status(status));
            response.headers_mut().insert(name, value.parse().unwrap());
            return response;
        }
        Reply::Status(status) => (status, Full::default().boxed()),
        Reply::Hang | Reply::After(..) | Reply::Close => unreachable!("handled before"),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn endless() -> ReplyBody {
    let chunk = Bytes::from_static(&[b' '; 4096]);
    let frames = stream::repeat_with(move || Ok(Frame::data(chunk.clone())));
    BodyExt::boxed(StreamBody::new(frames))
}

fn partial(text: &'static str) -> ReplyBody {
    let first = stream::once(async move { Ok(Frame::data(Bytes::from_static(text.as_bytes()))) });
    BodyExt::boxed(StreamBody::new(first.chain(stream::pending())))
}
