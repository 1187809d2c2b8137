//! A web site that plants data in every place where a browser keeps some, over HTTP and HTTPS.

use std::{path::Path, process::Command, sync::Arc};

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{Html, IntoResponse},
    routing::get,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        HandshakeKind, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// The name of the site over HTTPS. Browsers apply no HSTS to addresses.
const NAME: &str = "canary.test";
/// The start page: an icon, a form, and a link that is red once it was visited.
const PAGE: &str = "<!doctype html><title>canary</title><link rel=icon href=data:,>\
    <style>a { position: absolute; left: 0; top: 100px; width: 600px; height: 400px } \
    a, a:link { background-color: #0000ff } a:visited { background-color: #ff0000 }</style>\
    <body style='margin: 0'><form action=/submitted><input name=canary id=field></form>\
    <a href=/canary-visited id=link></a>";
const SERVICE_WORKER: &str = "addEventListener('install', () => skipWaiting()); \
    addEventListener('activate', event => event.waitUntil(clients.claim())); \
    addEventListener('fetch', event => { \
      if (event.request.url.endsWith('/from-service-worker')) event.respondWith(new Response('planted')) })";
/// A PNG image of one pixel.
const ICON: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// The site, served until the test's runtime ends.
pub struct CanarySite {
    /// The address over HTTP, by number.
    pub url: String,
    /// The address over HTTP, by name.
    pub named_url: String,
    /// The address over HTTPS, by name.
    pub secure_url: String,
    /// The hash of the certificate's key, as Chromium's flag expects it.
    key_hash: String,
}

impl CanarySite {
    pub async fn serve() -> Self {
        let directory = TempDir::new().unwrap();
        create_certificate(directory.path());
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [plain_port, secure_port] =
            [&plain, &secure].map(|listener| listener.local_addr().unwrap().port());
        tokio::spawn(async move { axum::serve(plain, routes()).await });
        tokio::spawn(serve_tls(secure, acceptor(directory.path())));
        Self {
            url: format!("http://127.0.0.1:{plain_port}"),
            named_url: format!("http://{NAME}:{plain_port}"),
            secure_url: format!("https://{NAME}:{secure_port}"),
            key_hash: key_hash(directory.path()),
        }
    }

    /// Returns the flags with which Chromium finds the site and trusts its certificate.
    pub fn chromium_flags(&self) -> [String; 2] {
        [
            format!("--chromium-flag=--host-resolver-rules=MAP {NAME} 127.0.0.1"),
            format!(
                "--chromium-flag=--ignore-certificate-errors-spki-list={}",
                self.key_hash
            ),
        ]
    }
}

fn routes() -> Router {
    let script = [(header::CONTENT_TYPE, "text/javascript")];
    let attachment = [(header::CONTENT_DISPOSITION, "attachment; filename=canary")];
    Router::new()
        .route(
            "/canary-icon.png",
            get((
                [(header::CONTENT_TYPE, "image/png")],
                BASE64_STANDARD.decode(ICON).unwrap(),
            )),
        )
        .route("/service-worker.js", get((script, SERVICE_WORKER)))
        .route("/from-service-worker", get("from the network"))
        .route("/download", get((attachment, "planted")))
        .route(
            "/cached",
            get(([(header::CACHE_CONTROL, "max-age=100000")], "planted")),
        )
        .route("/login", get(log_in))
        .route("/authorization", get(authorization))
        .route("/secure", get(secure))
        .fallback(async || Html(PAGE))
}

/// Asks for a password.
async fn log_in(headers: HeaderMap) -> impl IntoResponse {
    match headers.contains_key(header::AUTHORIZATION) {
        true => StatusCode::OK.into_response(),
        false => {
            let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=canary")];
            (StatusCode::UNAUTHORIZED, challenge).into_response()
        }
    }
}

/// Responds with the password that the browser sends unasked.
async fn authorization(headers: HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION);
    value
        .map(|value| value.to_str().unwrap().to_owned())
        .unwrap_or_default()
}

/// Demands HTTPS in future, and responds with whether the TLS session is one of an earlier
/// connection. Each request has a connection of its own.
async fn secure(kind: Option<Extension<HandshakeKind>>) -> impl IntoResponse {
    let is_resumed = kind.is_some_and(|Extension(kind)| kind == HandshakeKind::Resumed);
    let headers: [(HeaderName, &str); 4] = [
        (header::STRICT_TRANSPORT_SECURITY, "max-age=100000"),
        (header::CONNECTION, "close"),
        (header::CACHE_CONTROL, "no-store"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, if is_resumed { "resumed" } else { "full" })
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn create_certificate(directory: &Path) {
    let mut create = Command::new("openssl");
    create.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
    create.args([
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-subj",
        "/CN=canary.test",
    ]);
    create.args(["-addext", "subjectAltName=DNS:canary.test"]);
    run(create
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(directory));
}

fn key_hash(directory: &Path) -> String {
    let mut convert = Command::new("openssl");
    convert.args(["pkey", "-in", "key.pem", "-pubout", "-outform", "der"]);
    let key = run(convert.current_dir(directory));
    BASE64_STANDARD.encode(Sha256::digest(key))
}

fn acceptor(directory: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(directory.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

async fn serve_tls(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A browser also opens connections that it does not use.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let kind = stream.get_ref().1.handshake_kind();
            let routes = routes().layer(axum::middleware::map_request(
                move |mut request: Request| async move {
                    if let Some(kind) = kind {
                        request.extensions_mut().insert(kind);
                    }
                    request
                },
            ));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
            let _ = connection.await;
        });
    }
}
