//! The thin control plane in front of many agents.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Deref,
    sync::Arc,
};

use axum::{Router, middleware::from_fn_with_state};
use chrono::Utc;
use secrecy::{ExposeSecret, SecretSlice};
use tokio::net::TcpListener;
use url::Url;
use utoipa::openapi::OpenApi;

use crate::{
    api::ids::ProjectId,
    http::{App, Metrics, document as join_documents, serve},
    shutdown::Shutdown,
    state_dir::FileLock,
};

pub mod activity;
pub mod blobs;
pub mod browsers;
pub mod fleet;
pub mod key_create;
mod keyed_mutex;
pub mod keys;
pub mod proxy;
mod purge;
pub mod replays;
pub mod routes;
pub mod session_token;
pub mod settings;
pub mod state_dir;
pub mod store;

use blobs::Blobs;
use browsers::Browsers;
use fleet::LocalFleet;
use keys::{ApiKeys, random_hex};
use proxy::Proxy;
use replays::{ReplayError, Replays};
use session_token::SessionTokens;
use settings::{Config, Settings, SettingsError};
use state_dir::{StateDir, StateDirError};
use store::{Store, StoreError};

/// The name of the project that requests are about where they name none.
pub const DEFAULT_PROJECT: &str = "default";
/// Connections of all clients at once; more wait until one ends.
const MAX_CONNECTIONS: usize = 10_000;
/// Holds what session tokens are signed with: those of an earlier run go on working.
const SESSION_SECRET_FILE: &str = "session-secret";

/// Why control does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("cannot listen to signals: {0}")]
    Signals(io::Error),
    #[error("cannot use the database: {0}")]
    Store(#[from] StoreError),
    #[error("cannot keep replays: {0}")]
    Blobs(io::Error),
    #[error("cannot settle what an earlier run has left of replays: {0}")]
    Replays(#[from] ReplayError),
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot serve: {0}")]
    Serve(io::Error),
    #[error("{0} seconds were not enough to end everything in order")]
    ShutdownTimeout(u64),
}

/// All services, as the routes see them.
#[derive(Clone)]
pub struct Control {
    parts: Arc<Parts>,
}

pub struct Parts {
    pub store: Store,
    pub keys: ApiKeys,
    pub browsers: Browsers,
    pub replays: Replays,
    pub tokens: SessionTokens,
    pub proxy: Proxy,
    pub default_project: ProjectId,
    pub public_url: Option<Url>,
    /// Where the server listens.
    pub address: SocketAddr,
    /// Owns what outlives the request that asked for it.
    pub shutdown: Shutdown,
}

impl Deref for Control {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// A control plane that listens; it serves once it is run.
pub struct Started {
    pub control: Control,
    config: Config,
    state_dir: StateDir,
    /// The agent's document, for the session routes that are passed on to it.
    agent: OpenApi,
    listener: TcpListener,
    shutdown: Shutdown,
    _lock: FileLock,
}

/// Opens the database and brings it up to date; makes the default project at the first time.
pub async fn open_store(state_dir: &StateDir) -> Result<(Store, ProjectId), ControlError> {
    let _lock = state_dir.store_lock().await?;
    let store = Store::open_sqlite(&state_dir.prepare_database()?).await?;
    let default = store.default_project(DEFAULT_PROJECT, Utc::now()).await?;
    Ok((store, default.id))
}

/// The OpenAPI document of control; with the agent's, for its session routes are passed on.
#[must_use]
pub fn document(agent: OpenApi) -> OpenApi {
    let (open, guarded) = (routes::open(), routes::guarded(agent));
    join_documents(
        routes::API_INFO,
        open.get_openapi().clone(),
        guarded.get_openapi().clone(),
    )
}

/// Does everything that can go wrong before the first request.
pub async fn start(
    config: Config,
    agent: OpenApi,
    shutdown: Shutdown,
) -> Result<Started, ControlError> {
    let state_dir = StateDir::open(&config.state_dir)?;
    let lock = state_dir.lock()?;
    let address = config.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| ControlError::Listen { address, source })?;
    let address = listener.local_addr().map_err(ControlError::Serve)?;
    let (store, default_project) = open_store(&state_dir).await?;
    let fleet = LocalFleet::new(config.fleet.clone(), &state_dir, shutdown.clone());
    let blobs = Blobs::open(&state_dir.blobs()).map_err(ControlError::Blobs)?;
    let left_replays = state_dir.left_replays();
    let room = config.replay_bytes;
    let replays = Replays::new(store.clone(), blobs, left_replays, room, shutdown.clone());
    let browsers = Browsers::new(store.clone(), fleet, replays.clone(), shutdown.clone());
    let gone = browsers.recover().await?;
    replays.recover().await?;
    shutdown.spawn(browsers.clone().purge(config.keep_records));
    shutdown.spawn(replays.clone().purge(config.keep_replays));
    if gone > 0 {
        tracing::warn!(gone, "browsers of an earlier run are marked as gone");
    }
    let control = Control {
        parts: Arc::new(Parts {
            keys: ApiKeys::new(store.clone()),
            tokens: SessionTokens::new(&session_secret(&state_dir)?),
            proxy: Proxy::new(&shutdown),
            store,
            browsers,
            replays,
            default_project,
            public_url: config.public_url.clone(),
            address,
            shutdown: shutdown.clone(),
        }),
    };
    Ok(Started {
        control,
        config,
        state_dir,
        agent,
        listener,
        shutdown,
        _lock: lock,
    })
}

/// `berth control`: serves until a signal.
pub async fn run(settings: &Settings, agent: OpenApi, log: &str) -> Result<(), ControlError> {
    let config = settings.check(log)?;
    let shutdown = Shutdown::on_signals().map_err(ControlError::Signals)?;
    start(config, agent, shutdown).await?.run().await
}

impl Started {
    /// Where clients on this machine reach the server.
    pub fn base_url(&self) -> String {
        match &self.config.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("http://{}", reachable(self.control.address)),
        }
    }

    pub fn state_dir(&self) -> &StateDir {
        &self.state_dir
    }

    /// Serves until the stop; then ends every browser and closes the database.
    pub async fn run(self) -> Result<(), ControlError> {
        let Started {
            control,
            config,
            agent,
            listener,
            shutdown,
            _lock,
            ..
        } = self;
        let metrics = Metrics::install();
        metrics.keep_up(&shutdown);
        let router = router(&control, agent, metrics);
        let served = serve(listener, router, MAX_CONNECTIONS, &shutdown).await;
        // Agents, scripts and connections end together, each with what is left of the one grace.
        let ended = tokio::time::timeout(config.stop_grace, async {
            control.browsers.end_all().await;
            shutdown.drain(config.stop_grace).await
        });
        let in_time = ended.await.unwrap_or(false);
        control.store.clone().close().await?;
        served.map_err(ControlError::Serve)?;
        if in_time {
            Ok(())
        } else {
            Err(ControlError::ShutdownTimeout(config.stop_grace.as_secs()))
        }
    }
}

/// Who listens everywhere is base_url on loopback as well.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn router(control: &Control, agent: OpenApi, metrics: Metrics) -> Router {
    let app = App {
        info: routes::API_INFO,
        open: routes::open().with_state(control.clone()),
        guarded: routes::guarded(agent).with_state(control.clone()),
    };
    let guard = from_fn_with_state(control.clone(), routes::auth::authenticate);
    app.router(metrics, |routes| routes.layer(guard))
}

fn session_secret(state_dir: &StateDir) -> Result<SecretSlice<u8>, StateDirError> {
    let secret = match state_dir.read_secret(SESSION_SECRET_FILE)? {
        Some(secret) => secret,
        None => {
            let fresh = random_hex::<32>();
            state_dir.write_secret(SESSION_SECRET_FILE, &fresh)?;
            fresh.into()
        }
    };
    Ok(secret.expose_secret().as_bytes().to_vec().into())
}
