//! Creates services from the settings.

use super::{
    ControlError,
    auth_connections::{
        AuthConnections,
        flow_tokens::FlowTokens,
        logins::{LoginParts, Logins},
    },
    browsers::Browsers,
    connections::idle_per_agent,
    credentials::{StoredCredentials, fill::PageFiller},
    fleet::{
        LocalFleet,
        registered::{AuthorityError, JoinTokens, RegisteredHosts},
    },
    hosts::{HostSources, Hosts},
    keys::ApiKeys,
    pools::Pools,
    profiles::Profiles,
    providers::service::Providers,
    proxy::Proxy,
    replays::Replays,
    secrets::{Secrets, ring_source},
    settings::Config,
    state_dir::StateDir,
    store::Store,
    webhooks::Webhooks,
};
use crate::{
    shutdown::Shutdown,
    system::{identity::Authority, outbound::OutboundClient},
};

/// The services that store secrets.
pub(super) struct SecretServices {
    secrets: Secrets,
    pub(super) credentials: StoredCredentials,
    pub(super) providers: Providers,
    pub(super) webhooks: Webhooks,
    pub(super) flow_tokens: FlowTokens,
}

/// Returns the services that store secrets, if all keys that they need are there.
pub(super) async fn services_with_secrets(
    config: &Config,
    state_dir: &StateDir,
    store: &Store,
    shutdown: &Shutdown,
) -> Result<SecretServices, ControlError> {
    let ring = ring_source::open(config.secrets_keys.as_ref(), state_dir, store).await?;
    let secrets = Secrets::open(store.clone(), ring).await?;
    let settings = &config.providers;
    let client = OutboundClient::new(settings.outbound_options())?;
    Ok(SecretServices {
        providers: Providers::new(settings, client.clone(), store, &secrets),
        webhooks: Webhooks::new(settings, client, store, &secrets, shutdown),
        flow_tokens: FlowTokens::new(store.clone(), secrets.clone()),
        credentials: StoredCredentials::new(store.clone(), secrets.clone()),
        secrets,
    })
}

/// Returns the service of the hosts of both fleets.
pub(super) fn hosts(
    (config, registered): (&Config, &RegisteredHosts),
    state_dir: &StateDir,
    store: &Store,
    replays: &Replays,
    shutdown: &Shutdown,
) -> Hosts {
    let sources = HostSources {
        fleet: config.host_fleet,
        local: LocalFleet::new(config.fleet.clone(), state_dir, shutdown.clone()),
        idle_hosts: config.fleet.idle_hosts,
        registered: registered.clone(),
    };
    Hosts::new(store.clone(), sources, replays.clone(), shutdown.clone())
}

pub(super) fn browsers(
    store: &Store,
    hosts: &Hosts,
    (replays, profiles): (&Replays, &Profiles),
    shutdown: &Shutdown,
) -> Browsers {
    Browsers::new(
        store.clone(),
        hosts.clone(),
        replays.clone(),
        profiles.clone(),
        shutdown.clone(),
    )
}

/// Returns the proxy of the requests for agents.
pub(super) fn proxy(
    config: &Config,
    registered_hosts: &RegisteredHosts,
    shutdown: &Shutdown,
) -> Proxy {
    let proxy = Proxy::new(shutdown, idle_per_agent(config));
    proxy.with_registered_hosts(registered_hosts.tls().clone())
}

pub(super) fn pools(
    store: &Store,
    hosts: &Hosts,
    browsers: &Browsers,
    shutdown: &Shutdown,
) -> Pools {
    let (hosts, browsers) = (hosts.clone(), browsers.clone());
    Pools::new(store.clone(), hosts, browsers, shutdown.clone())
}

/// Returns the service of hosts that register themselves, and that of the tokens for it.
pub(super) fn registered_hosts(
    config: &Config,
    authority: Authority,
    keys: &ApiKeys,
    store: &Store,
) -> Result<(JoinTokens, RegisteredHosts), ControlError> {
    let join_tokens = JoinTokens::new(store.clone(), keys.clone());
    let interval = config.registered_fleet.heartbeat_interval;
    let hosts = RegisteredHosts::new(store.clone(), join_tokens.clone(), authority, interval);
    Ok((join_tokens, hosts.map_err(AuthorityError::from)?))
}

pub(super) fn page_filler(
    config: &Config,
    sealed: &SecretServices,
    browsers: &Browsers,
) -> PageFiller {
    PageFiller::new(config, &sealed.credentials, &sealed.providers, browsers)
}

pub(super) fn auth_connections(
    config: &Config,
    store: &Store,
    sealed: &SecretServices,
) -> AuthConnections {
    AuthConnections::new(
        store.clone(),
        sealed.credentials.clone(),
        sealed.providers.clone(),
        (config.max_auth_connections, config.allow_http_logins),
    )
}

/// Returns the service of logins.
pub(super) fn logins(
    config: &Config,
    store: &Store,
    (browsers, profiles, replays): (&Browsers, &Profiles, &Replays),
    sealed: &SecretServices,
    shutdown: &Shutdown,
) -> Logins {
    Logins::new(LoginParts {
        store: store.clone(),
        browsers: browsers.clone(),
        profiles: profiles.clone(),
        replays: replays.clone(),
        credentials: sealed.credentials.clone(),
        filler: page_filler(config, sealed, browsers),
        secrets: sealed.secrets.clone(),
        policy: config.providers.outbound_options().policy,
        shutdown: shutdown.clone(),
    })
}
