//! The sites over HTTPS, with a certificate of their own.

use std::sync::Arc;

use axum::Router;
use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rcgen::{CertifiedKey, PublicKeyData, generate_simple_self_signed};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

pub(super) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// The hash of the certificate's key, as Chromium's flag expects it.
    pub(super) key_hash: String,
}

impl TlsListener {
    /// Listens on a free port, with a certificate for these host names.
    pub(super) async fn bind(names: &[String]) -> TlsListener {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let key_hash = Sha256::digest(signing_key.subject_public_key_info());
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .unwrap();
        TlsListener {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            key_hash: BASE64_STANDARD.encode(key_hash),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub(super) async fn serve(self, router: Router) {
        while let Ok((stream, _)) = self.listener.accept().await {
            tokio::spawn(answer(self.acceptor.clone(), stream, router.clone()));
        }
    }
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, router: Router) {
    // A browser also opens connections that it does not use, and closes them when it likes.
    if let Ok(stream) = acceptor.accept(stream).await {
        let service = TowerToHyperService::new(router);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = connection.await;
    }
}
