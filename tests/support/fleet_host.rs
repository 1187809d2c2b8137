//! A host that registers itself, without an agent: its key, the requests that its agent sends, and
//! a TLS server in place of the agent.

use std::{net::SocketAddr, sync::Arc};

use berth::system::identity::{HostKey, TokenAudience};
use reqwest::Method;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

use super::dev::{Answer, Dev};

pub struct FleetHost {
    pub key: HostKey,
    pub id: String,
    pub boot_id: String,
    pub address: SocketAddr,
    server: AbortHandle,
}

impl FleetHost {
    /// Registers a host with a new join token.
    pub async fn register(dev: &Dev) -> FleetHost {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let token = join_token(dev, json!({})).await;
        let key = HostKey::generate().unwrap();
        let address = listener.local_addr().unwrap();
        let answer = register(dev, &token, &registration_at(&key, address)).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |field: &str| answer.body[field].as_str().unwrap();
        let tls = key.server_config(text("certificate"), text("ca_certificate"));
        FleetHost {
            id: text("host_id").to_owned(),
            boot_id: "first-boot".to_owned(),
            address,
            server: tokio::spawn(serve(listener, tls.unwrap())).abort_handle(),
            key,
        }
    }

    pub fn path(&self) -> String {
        format!("/fleet/hosts/{}", self.id)
    }

    /// Registers the host again with its own key.
    pub async fn register_again(&self, dev: &Dev) -> Answer {
        let token = self.key.token(TokenAudience::Registration).unwrap();
        let mut request = registration_at(&self.key, self.address);
        request["boot_id"] = self.boot_id.as_str().into();
        register(dev, &token, &request).await
    }

    /// Sends a heartbeat.
    pub async fn report(&self, dev: &Dev, generation: u64, ready: bool) -> Answer {
        let report = json!({
            "boot_id": self.boot_id, "generation": generation, "ready": ready,
        });
        let token = self.key.token(TokenAudience::Heartbeat).unwrap();
        heartbeat(dev, &self.path(), &token, &report).await
    }

    /// Returns the host's entry in the list, or null.
    pub async fn record(&self, dev: &Dev) -> Value {
        let listed = dev.get("/fleet/hosts?limit=100").await.body;
        let mut entries = listed.as_array().unwrap().iter();
        let found = entries.find(|entry| entry["id"] == self.id.as_str());
        found.cloned().unwrap_or_default()
    }
}

impl Drop for FleetHost {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers every request with an empty object.
async fn serve(listener: TcpListener, tls: ServerConfig) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(acceptor.clone(), stream));
    }
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream) -> Option<()> {
    let mut stream = acceptor.accept(stream).await.ok()?;
    let mut request = Vec::new();
    loop {
        stream
            .read_buf(&mut request)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(response).await.ok()?;
        }
    }
}

/// Creates a join token and returns its secret.
pub async fn join_token(dev: &Dev, properties: Value) -> String {
    let created = dev.post("/fleet/join_tokens", properties).await;
    assert_eq!(created.status, 201, "{}", created.body);
    created.body["token"].as_str().unwrap().to_owned()
}

/// Returns the registration of a host with that key, at an address where it does not listen.
pub fn registration(key: &HostKey) -> Value {
    registration_at(key, SocketAddr::from(([10, 0, 0, 7], 10_001)))
}

pub fn registration_at(key: &HostKey, address: SocketAddr) -> Value {
    json!({
        "address": address.to_string(),
        "boot_id": "first-boot",
        "certificate_request": key.certificate_request().unwrap(),
        "capabilities": {
            "display": true,
            "kiosk_mode": false,
            "max_viewport": {"width": 3840, "height": 2160},
            "engine": "chromium",
            "memory_bytes": 4_294_967_296_u64,
        },
        "version": "0.1.0",
    })
}

pub async fn register(dev: &Dev, token: &str, request: &Value) -> Answer {
    let sent = dev.anonymous(Method::POST, "/fleet/hosts").json(request);
    Answer::of(sent.bearer_auth(token)).await
}

pub async fn heartbeat(dev: &Dev, host: &str, token: &str, report: &Value) -> Answer {
    let sent = dev.anonymous(Method::POST, &format!("{host}/heartbeat"));
    Answer::of(sent.json(report).bearer_auth(token)).await
}
