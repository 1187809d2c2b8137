//! The tasks of control that run until shutdown.

use std::thread::available_parallelism;

use super::{
    Control,
    auth_connections::health::HealthChecks,
    connections,
    fleet::registered::{HostExpiry, HostLaunches, warn_of_unmanaged_launches},
    notices::Listeners,
    processes::{Membership, ProcessLockTask},
    purge::Purge,
    service_status,
    settings::Config,
    store::Fleet,
};

/// The most registered hosts that are used at once to keep auth connections logged in.
const MAX_REGISTERED_CHECKS: usize = 32;

/// Starts the tasks that run until shutdown. Returns the one that holds the locks of the database.
pub(super) fn spawn(
    control: &Control,
    config: &Config,
    membership: Membership,
) -> Option<ProcessLockTask> {
    let shutdown = &control.shutdown;
    let Membership {
        leadership,
        lock,
        hints,
    } = membership;
    service_status::start(control.address, &leadership, shutdown);
    let purge = Purge::new(
        control.store.clone(),
        control.replays.clone(),
        config.retention,
    );
    shutdown.spawn(purge.run(leadership.clone(), shutdown.clone()));
    let profiles = &control.profiles;
    shutdown.spawn(profiles.clone().maintain(leadership.clone()));
    shutdown.spawn(profiles.clone().collect(leadership.clone()));
    shutdown.spawn(control.projects.clone().end_archived());
    let expiry = HostExpiry::new(&control.registered_hosts);
    shutdown.spawn(expiry.run(shutdown.clone()));
    match host_launches(control, config) {
        Some(launches) => {
            shutdown.spawn(launches.clone().request_hosts());
            shutdown.spawn(launches.reconcile(leadership.clone()));
        }
        None => {
            let warning = warn_of_unmanaged_launches(
                control.store.clone(),
                leadership.clone(),
                shutdown.clone(),
            );
            shutdown.spawn(warning);
        }
    }
    shutdown.spawn(control.hosts.clone().reconcile(leadership.clone()));
    shutdown.spawn(control.browsers.clone().follow(leadership.clone()));
    shutdown.spawn(health_checks(control, config).run(leadership.clone()));
    shutdown.spawn(control.pools.clone().reconcile(leadership));
    shutdown.spawn(control.pools.clone().dispatch());
    shutdown.spawn(control.browsers.clone().record_use());
    shutdown.spawn(control.webhooks.clone().deliver());
    let flow_tokens = control.flow_tokens.clone();
    shutdown.spawn(flow_tokens.maintain(shutdown.clone()));
    shutdown.spawn(control.logins.clone().adopt());
    if let Some(hints) = hints {
        let listeners = Listeners {
            keys: control.keys.clone(),
            projects: control.projects.clone(),
            browsers: control.browsers.clone(),
            pools: control.pools.clone(),
            hosts: control.hosts.clone(),
            flows: control.store.flow_changes().clone(),
            shutdown: shutdown.clone(),
        };
        shutdown.spawn(listeners.listen(hints));
    }
    lock
}

/// Returns the service that keeps auth connections logged in. On this machine it shares the
/// processors with the browsers of clients.
fn health_checks(control: &Control, config: &Config) -> HealthChecks {
    let max_browsers = match config.host_fleet {
        Fleet::Local => available_parallelism().map_or(1, usize::from),
        Fleet::Registered => MAX_REGISTERED_CHECKS,
    };
    let (logins, connections) = (&control.logins, &control.auth_connections);
    HealthChecks::new(logins.clone(), connections.clone(), max_browsers)
}

/// Returns the service that launches hosts, if there are commands for that.
fn host_launches(control: &Control, config: &Config) -> Option<HostLaunches> {
    Some(HostLaunches::new(
        control.store.clone(),
        control.registered_hosts.clone(),
        config.registered_fleet.launch.clone()?,
        connections::base_url(config, control.address),
        control.shutdown.clone(),
    ))
}
