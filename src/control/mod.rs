//! The control plane: the public API in front of many agents.
//!
//! ```text
//! start: lock the state directory -> bind the listener -> open and lock the database -> recover
//! run:   serve until shutdown -> end local browsers -> drain tasks -> close the database
//!
//! routes (authenticate, decode, one call, encode)
//!   |
//!   v
//! browsers   replays   keys   session_token   projects   proxy ── HTTP and WebSockets ──▶ agents
//!   |    \       |       |      credentials ── secrets ── providers ── HTTPS ──▶ password managers
//!   |     \      |       |                        └────── webhooks ─── HTTPS ──▶ your endpoints
//!   v     \      v       v
//! fleet    \   blobs   store (SQL)
//!   |       └────────────▲
//!   └── hosts: agents as child processes, or on machines that have registered
//! ```
//!
//! A request counts for its key ([`caller_limits`]) before it is handled, and is recorded in the
//! audit log ([`audit`]) when it has ended.
//!
//! The database and the blob store hold all state that survives a restart. In memory are only the
//! handles of active browsers ([`mod@browsers`]) and a cache of keys and projects
//! ([`access_cache`]).
//!
//! Handlers take the services they use from [`Control`], through axum's `FromRef`.

use std::{
    net::{self, SocketAddr},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::FromRef, middleware::from_fn_with_state};
use secrecy::SecretSlice;
use tokio::net::TcpListener;
use url::Url;
use utoipa::openapi::OpenApi;

use crate::{
    http::{App, Metrics, StaticToken, document as join_documents, serve},
    shutdown::Shutdown,
    state_dir::FileLock,
    system::identity::Authority,
};

mod access_cache;
pub mod activity;
pub mod audit;
pub mod auth_connections;
pub mod blobs;
pub mod browsers;
pub mod caller_limits;
mod connections;
pub mod credentials;
pub mod database;
mod error;
pub mod fleet;
pub mod hosts;
pub mod key_create;
mod keyed_mutex;
pub mod keys;
pub mod login_page;
mod notices;
pub mod pools;
pub mod processes;
pub mod profiles;
pub mod projects;
pub mod providers;
pub mod proxy;
pub mod purge;
pub mod region;
pub mod replays;
pub mod routes;
pub mod secret_token;
pub mod secrets;
mod service_status;
mod services;
pub mod session_token;
pub mod settings;
pub mod state_dir;
pub mod store;
mod stored_files;
mod tasks;
pub mod trusted_proxies;
pub mod webhooks;

use audit::AuditLog;
use auth_connections::{AuthConnections, flow_tokens::FlowTokens, logins::Logins};
use browsers::Browsers;
use caller_limits::CallerLimits;
use credentials::{StoredCredentials, fill::PageFiller};
pub use error::ControlError;
use fleet::registered::{JoinTokens, RegisteredHosts};
use hosts::Hosts;
use keys::ApiKeys;
use pools::Pools;
use processes::{Leadership, ProcessLockTask};
use profiles::Profiles;
use projects::Projects;
use providers::service::Providers;
use proxy::Proxy;
use region::ServerRegion;
use replays::Replays;
use routes::{
    auditing::Auditing,
    guard::Guard,
    login::HostedLoginPage,
    sunset::{Sunset, enforce_sunset},
};
use services::{
    auth_connections, browsers, hosts, logins, page_filler, pools, proxy, registered_hosts,
    services_with_secrets,
};
use session_token::SessionTokens;
use settings::{Config, FleetConfig, Settings};
use state_dir::StateDir;
use store::Store;
use stored_files::{open_blobs, stored_files};
use trusted_proxies::TrustedProxies;
use webhooks::Webhooks;

/// The name with which the default project is created: that of requests that do not name one.
pub const DEFAULT_PROJECT: &str = "default";
/// The time in which the last records of the audit log must be stored, at the end of a shutdown.
const AUDIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the routes: a cheap handle to the services.
#[derive(Clone)]
pub struct Control {
    services: Arc<Services>,
}

/// The services of control.
pub struct Services {
    pub store: Store,
    pub keys: ApiKeys,
    pub join_tokens: JoinTokens,
    pub registered_hosts: RegisteredHosts,
    pub projects: Projects,
    pub hosts: Hosts,
    pub browsers: Browsers,
    pub pools: Pools,
    pub replays: Replays,
    pub profiles: Profiles,
    pub credentials: StoredCredentials,
    pub providers: Providers,
    pub filler: PageFiller,
    pub auth_connections: AuthConnections,
    pub flow_tokens: FlowTokens,
    pub logins: Logins,
    pub webhooks: Webhooks,
    pub login_page: HostedLoginPage,
    pub tokens: SessionTokens,
    pub proxy: Proxy,
    pub audit: AuditLog,
    pub limits: CallerLimits,
    /// The token that is valid for the metrics only, if there is one.
    pub metrics_token: Option<StaticToken>,
    pub public_url: Option<Url>,
    pub region: ServerRegion,
    pub trusted_proxies: TrustedProxies,
    /// The address at which the server listens.
    pub address: SocketAddr,
    /// Owns the tasks that may outlive the request that started them.
    pub shutdown: Shutdown,
}

impl Control {
    fn of(services: Services) -> Control {
        Control {
            services: Arc::new(services),
        }
    }
}

impl Deref for Control {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

/// Lets handlers extract a service on its own.
macro_rules! extract_services {
    ($($field:ident: $service:ty),* $(,)?) => {$(
        impl FromRef<Control> for $service {
            fn from_ref(control: &Control) -> Self {
                control.$field.clone()
            }
        }
    )*};
}

extract_services! {
    store: Store,
    keys: ApiKeys,
    join_tokens: JoinTokens,
    registered_hosts: RegisteredHosts,
    projects: Projects,
    hosts: Hosts,
    browsers: Browsers,
    pools: Pools,
    replays: Replays,
    profiles: Profiles,
    credentials: StoredCredentials,
    providers: Providers,
    filler: PageFiller,
    auth_connections: AuthConnections,
    flow_tokens: FlowTokens,
    logins: Logins,
    webhooks: Webhooks,
    login_page: HostedLoginPage,
    tokens: SessionTokens,
    proxy: Proxy,
    audit: AuditLog,
    region: ServerRegion,
    shutdown: Shutdown,
}

/// A control plane that listens, and serves when it is run.
pub struct Started {
    pub control: Control,
    config: Config,
    state_dir: StateDir,
    /// The agent's OpenAPI document, for the session routes that are forwarded to it.
    agent: OpenApi,
    listener: TcpListener,
    shutdown: Shutdown,
    /// Holds the lock of a PostgreSQL database.
    process_lock: Option<ProcessLockTask>,
    _lock: FileLock,
}

/// Returns the OpenAPI document of control. It includes the session routes of `agent`, which are
/// forwarded.
#[must_use]
pub fn document(agent: OpenApi) -> OpenApi {
    let (open, guarded) = (routes::open(), routes::guarded(agent));
    join_documents(
        routes::API_INFO,
        open.get_openapi().clone(),
        guarded.get_openapi().clone(),
    )
}

/// Performs all steps that can fail before the first request. `passed_listener` is used instead
/// of the configured address.
pub async fn start(
    config: Config,
    agent: OpenApi,
    passed_listener: Option<net::TcpListener>,
    shutdown: Shutdown,
) -> Result<Started, ControlError> {
    let state_dir = StateDir::open(&config.state_dir)?;
    let lock = state_dir.lock()?;
    let (listener, address) = listen(config.listen, passed_listener).await?;
    let (blobs, place) = open_blobs(&state_dir, &config.blobs).await?;
    let store = database::open_store(&state_dir, &config.database, place).await?;
    let (secret, authority) = open_secrets(&config, &state_dir)?;
    let common = (&secret, &authority);
    let joined = processes::join(&store, &config, &state_dir, &blobs, common, &shutdown);
    let (store, membership) = joined.await?;
    let sealed = services_with_secrets(&config, &state_dir, &store, &shutdown).await?;
    let keys = ApiKeys::new(store.clone(), shutdown.clone());
    let (join_tokens, registered_hosts) = registered_hosts(&config, authority, &keys, &store)?;
    let (replays, profiles) = stored_files(&config, &state_dir, &store, blobs, &shutdown)?;
    let fleets = (&config, &registered_hosts);
    let hosts = hosts(fleets, &state_dir, &store, &replays, &shutdown);
    let browsers = browsers(&store, &hosts, (&replays, &profiles), &shutdown);
    recover(&browsers, &membership.leadership, (&replays, &profiles)).await?;
    let saved = (&browsers, &profiles, &replays);
    let control = Control::of(Services {
        pools: pools(&store, &hosts, &browsers, &shutdown),
        hosts,
        proxy: proxy(&config, &registered_hosts, &shutdown),
        registered_hosts,
        join_tokens,
        keys,
        tokens: SessionTokens::new(&secret),
        audit: AuditLog::start(store.clone()),
        limits: CallerLimits::new(config.caller_quota),
        metrics_token: metrics_token(&config),
        projects: Projects::new(store.clone(), browsers.clone(), shutdown.clone()),
        logins: logins(&config, &store, saved, &sealed, &shutdown),
        filler: page_filler(&config, &sealed, &browsers),
        auth_connections: auth_connections(&config, &store, &sealed),
        credentials: sealed.credentials,
        providers: sealed.providers,
        webhooks: sealed.webhooks,
        flow_tokens: sealed.flow_tokens,
        login_page: HostedLoginPage::new(&config.login_page),
        store,
        browsers,
        replays,
        profiles,
        public_url: config.public_url.clone(),
        region: config.region.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        address,
        shutdown: shutdown.clone(),
    });
    Ok(Started {
        process_lock: tasks::spawn(&control, &config, membership),
        control,
        config,
        state_dir,
        agent,
        listener,
        shutdown,
        _lock: lock,
    })
}

/// Returns the secret of session tokens, and the authority of registered hosts.
fn open_secrets(
    config: &Config,
    state_dir: &StateDir,
) -> Result<(SecretSlice<u8>, Authority), ControlError> {
    let secret = session_token::secret(config.session_secret.as_ref(), state_dir)?;
    Ok((secret, config.registered_fleet.open_authority(state_dir)?))
}

/// Continues or closes what an earlier run left unfinished.
async fn recover(
    browsers: &Browsers,
    leadership: &Leadership,
    (replays, profiles): (&Replays, &Profiles),
) -> Result<(), ControlError> {
    profiles.recover(leadership).await?;
    let gone = browsers.recover(leadership).await?;
    replays.recover().await?;
    if gone > 0 {
        tracing::warn!(gone, "marked browsers of an earlier run as gone");
    }
    Ok(())
}

/// Listens, unless a listening socket was passed, and returns the address with the port.
async fn listen(
    address: SocketAddr,
    passed_listener: Option<net::TcpListener>,
) -> Result<(TcpListener, SocketAddr), ControlError> {
    let listener = match passed_listener {
        Some(listener) => TcpListener::from_std(listener),
        None => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(|source| ControlError::Listen { address, source })?;
    let address = listener.local_addr().map_err(ControlError::Serve)?;
    Ok((listener, address))
}

/// Runs `berth control` until a signal stops it, on the listening socket that the service manager
/// passed, if any.
pub async fn run(
    settings: &Settings,
    agent: OpenApi,
    passed_listener: Option<net::TcpListener>,
    log: &str,
) -> Result<(), ControlError> {
    let config = settings.check(log)?;
    let shutdown = Shutdown::on_signals().map_err(ControlError::Signals)?;
    start(config, agent, passed_listener, shutdown)
        .await?
        .run()
        .await
}

impl Started {
    /// Returns the base URL at which clients on this machine reach the server.
    pub fn base_url(&self) -> String {
        connections::base_url(&self.config, self.control.address)
    }

    /// Returns the base URL at which programs on this machine reach the server without a proxy.
    pub fn local_url(&self) -> String {
        connections::local_url(self.control.address)
    }

    /// Returns the settings of agents on this machine.
    pub fn local_fleet(&self) -> &FleetConfig {
        &self.config.fleet
    }

    pub fn state_dir(&self) -> &StateDir {
        &self.state_dir
    }

    /// Serves until shutdown, then ends every browser on this machine and closes the database.
    pub async fn run(self) -> Result<(), ControlError> {
        let Started {
            control,
            config,
            agent,
            listener,
            shutdown,
            process_lock,
            _lock,
            ..
        } = self;
        let metrics = Metrics::install();
        metrics.spawn_upkeep(&shutdown);
        let router = router(&control, agent, &config, metrics);
        let served = serve(listener, router, connections::limits(&config), &shutdown).await;
        // One grace period covers ending the browsers and draining tasks and connections.
        let stopping = tokio::time::timeout(config.shutdown_grace_period, async {
            control.browsers.end_all().await;
            shutdown.drain(config.shutdown_grace_period).await
        });
        let is_complete = stopping.await.unwrap_or(false);
        control.audit.close(AUDIT_FLUSH_TIMEOUT).await;
        let process_lock = match process_lock {
            Some(task) if is_complete => task.await.ok(),
            _ => None,
        };
        control.store.clone().close().await?;
        // Released after the last write.
        drop(process_lock.transpose()?);
        served.map_err(ControlError::Serve)?;
        if is_complete {
            Ok(())
        } else {
            Err(ControlError::ShutdownTimeout(
                config.shutdown_grace_period.as_secs(),
            ))
        }
    }
}

fn metrics_token(config: &Config) -> Option<StaticToken> {
    let token = config.metrics_token.as_ref();
    token.map(|token| StaticToken::new(Some(token)))
}

fn router(control: &Control, agent: OpenApi, config: &Config, metrics: Metrics) -> Router {
    let app = App {
        info: routes::API_INFO,
        open: routes::open().with_state(control.clone()),
        guarded: routes::guarded(agent).with_state(control.clone()),
        is_behind_control: false,
    };
    let proxies = config.trusted_proxies.clone();
    let guard = Guard {
        control: control.clone(),
        auditing: Auditing::new(control.audit.clone(), &app.document(), proxies),
    };
    let guard = from_fn_with_state(guard, routes::guard::guard);
    let sunset = Sunset::new(config.enforce_sunset, config.public_url.as_ref());
    let sunset = from_fn_with_state(sunset, enforce_sunset);
    app.router(metrics, |routes| routes.layer(guard).layer(sunset))
}
