//! A password manager that speaks the Connect REST API, as far as it is read.

use std::sync::{
    Arc,
    atomic::{AtomicU16, AtomicUsize, Ordering},
};

use axum::{
    Router,
    extract::{Path, Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::url_log::UrlLog;

/// A token that the server accepts.
pub const TOKEN: &str = "canary-of-a-provider-token";
/// The values of its item.
pub const USER_NAME: &str = "canary-of-a-provided-user";
pub const PASSWORD: &str = "canary-of-a-provided-password";

/// The server, until it is dropped.
pub struct ProviderServer {
    pub base_url: String,
    pub urls: UrlLog,
    state: Arc<ServerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct ServerState {
    /// The status of all responses, unless it is 0.
    status: AtomicU16,
    requests: AtomicUsize,
    /// The URL of the item.
    url: String,
}

impl ProviderServer {
    /// Starts a server with one item, for `example.com`.
    pub async fn start() -> ProviderServer {
        ProviderServer::start_for("https://example.com/login").await
    }

    /// Starts a server with one item, for a URL.
    pub async fn start_for(url: &str) -> ProviderServer {
        let state = Arc::new(ServerState {
            url: url.to_owned(),
            ..ServerState::default()
        });
        let urls = UrlLog::default();
        let router = Router::new()
            .route("/v1/vaults", get(vaults))
            .route("/v1/vaults/{vault}/items", get(items))
            .route("/v1/vaults/{vault}/items/{item}", get(item))
            .layer(from_fn_with_state(state.clone(), check))
            .layer(from_fn_with_state(urls.clone(), UrlLog::record))
            .with_state(state.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        ProviderServer {
            base_url,
            urls,
            state,
            task,
        }
    }

    /// Answers all requests with a status from now on.
    pub fn fail_with(&self, status: StatusCode) {
        self.state.status.store(status.as_u16(), Ordering::SeqCst);
    }

    /// Returns how many requests the server has received.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}

impl Drop for ProviderServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn check(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    state.requests.fetch_add(1, Ordering::SeqCst);
    let status = state.status.load(Ordering::SeqCst);
    if status != 0 {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    let given = request.headers().get(AUTHORIZATION);
    let is_valid = given.is_some_and(|given| given == format!("Bearer {TOKEN}").as_str());
    match is_valid {
        true => next.run(request).await,
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn vaults() -> Json<Value> {
    Json(json!([{"id": "vault1", "name": "Team"}, {"id": "vault2", "name": "Empty"}]))
}

fn summary(state: &ServerState) -> Value {
    json!({
        "id": "item1",
        "title": "Shop",
        "vault": {"id": "vault1"},
        "category": "LOGIN",
        "urls": [{"primary": true, "href": state.url}],
    })
}

async fn items(State(state): State<Arc<ServerState>>, Path(vault): Path<String>) -> Json<Value> {
    Json(match vault.as_str() {
        "vault1" => json!([summary(&state)]),
        _ => json!([]),
    })
}

async fn item(
    State(state): State<Arc<ServerState>>,
    Path((vault, item)): Path<(String, String)>,
) -> Response {
    if (vault.as_str(), item.as_str()) != ("vault1", "item1") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let mut item = summary(&state);
    item["fields"] = json!([
        {"id": "username", "type": "STRING", "purpose": "USERNAME", "label": "username", "value": USER_NAME},
        {"id": "password", "type": "CONCEALED", "purpose": "PASSWORD", "label": "password", "value": PASSWORD},
    ]);
    Json(item).into_response()
}
