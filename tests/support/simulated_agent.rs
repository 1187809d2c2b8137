//! A registered host without an agent: it answers what control asks at the begin and at the end of
//! a session, and about a login, at once.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use berth::system::identity::{HostKey, TokenAudience};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

use super::{
    dev::Dev,
    fleet_host::{heartbeat, join_token, register, registration_at},
    simulated_login::SimulatedLogin,
};

/// A host that ends with this value.
pub struct SimulatedAgent {
    server: AbortHandle,
    session: Arc<Session>,
}

/// The knowledge of the agent.
struct Session {
    started: Instant,
    generation: AtomicU64,
    login: SimulatedLogin,
    /// Whether its browser responds.
    is_responsive: watch::Sender<bool>,
}

impl SimulatedAgent {
    /// Registers a host that gets sessions. It reports once.
    pub async fn join(dev: &Dev) -> SimulatedAgent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let token = join_token(dev, json!({})).await;
        let key = HostKey::generate().unwrap();
        let request = registration_at(&key, listener.local_addr().unwrap());
        let answer = register(dev, &token, &request).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |field: &str| answer.body[field].as_str().unwrap();
        let tls = key.server_config(text("certificate"), text("ca_certificate"));
        let tls = TlsAcceptor::from(Arc::new(tls.unwrap()));
        let session = Arc::new(Session {
            started: Instant::now(),
            generation: AtomicU64::new(1),
            login: SimulatedLogin::default(),
            is_responsive: watch::Sender::new(true),
        });
        let server = tokio::spawn(accept(listener, tls, session.clone())).abort_handle();
        let report = json!({"boot_id": "first-boot", "generation": 1, "ready": true});
        let token = key.token(TokenAudience::Heartbeat).unwrap();
        let path = format!("/fleet/hosts/{}", text("host_id"));
        let reported = heartbeat(dev, &path, &token, &report).await;
        assert!(reported.status.is_success(), "{}", reported.body);
        SimulatedAgent { server, session }
    }

    /// Lets requests about the browser wait, or answers them and those that wait.
    pub fn set_responsive(&self, is_responsive: bool) {
        self.session.is_responsive.send_replace(is_responsive);
    }

    /// Returns the page in front of its browser.
    pub fn login(&self) -> &SimulatedLogin {
        &self.session.login
    }
}

impl Drop for SimulatedAgent {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, session: Arc<Session>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(tls.clone(), stream, session.clone()));
    }
}

async fn answer(tls: TlsAcceptor, stream: TcpStream, session: Arc<Session>) {
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(session.respond(request).await)
    });
    if let Ok(stream) = tls.accept(stream).await {
        // Control closes connections when it likes.
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = connection.await;
    }
}

impl Session {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_about_browser = ["/health", "/json/version"].contains(&path.as_str());
        if is_about_browser {
            let mut is_responsive = self.is_responsive.subscribe();
            let _ = is_responsive.wait_for(|is_responsive| *is_responsive).await;
        }
        let answer = match path.as_str() {
            "/health" => self.health(),
            "/login/inspect" => self.login.inspected(),
            "/credentials/fill" => self.login.fill(&body),
            "/session/end" => {
                let generation = body["generation"].as_u64().unwrap();
                // Ended again, it has the same receipt.
                self.generation.fetch_max(generation + 1, Ordering::Relaxed);
                receipt(generation)
            }
            _ => json!({}),
        };
        let mut response = Response::new(Full::from(answer.to_string()));
        if body["wait"] == false {
            *response.status_mut() = StatusCode::ACCEPTED;
        }
        response
    }

    fn health(&self) -> Value {
        let uptime = self.started.elapsed();
        json!({
            "status": "ok", "version": "0.1.0",
            "uptime_seconds": uptime.as_secs(), "uptime_ms": uptime.as_millis() as u64,
            "chromium": {"state": "running", "since": "2026-01-01T00:00:00.000Z", "restarts": 0},
            "display": {
                "state": "up", "name": ":0",
                "viewport": {"width": 1920, "height": 1080, "refresh_rate": 25},
            },
        })
    }
}

/// Returns the receipt of a session that left nothing.
fn receipt(generation: u64) -> Value {
    json!({
        "generation": generation,
        "next_generation": generation + 1,
        "clean": true,
        "duration_ms": 0,
        "terminated": {"chromium": true, "processes": 0, "devtools_clients": 0, "watches": 0},
        "replays": [],
        "remaining": [],
        "tainted_by": [],
    })
}
