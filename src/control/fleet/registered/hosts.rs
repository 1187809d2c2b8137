//! The registered hosts, as operators see and change them.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use rustls::ClientConfig;
use tokio::sync::Notify;

use super::{
    demand::HostDemand,
    join_tokens::{JoinTokenError, JoinTokens},
};
use crate::{
    api::ids::HostId,
    control::{
        fleet::{AgentAccess, AgentClient, AgentEndpoint, AgentError},
        hosts::state::{Event, HostLife, State},
        store::{HostMachine, RegisteredHostRow, Store, StoreError},
    },
    system::identity::{Authority, HostIdentityError, HostTokens},
};

/// The most attempts of a change while others change the same host.
const MAX_ATTEMPTS: usize = 10;

/// The time in which the agent of a host that starts must respond. Less than its agent waits for
/// the answer to a heartbeat.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);
/// The time in which the agent of a deleted host must end its session.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an operation on registered hosts failed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("no host with that id")]
    NotFound,
    #[error(transparent)]
    JoinToken(#[from] JoinTokenError),
    /// Does not tell the reason, so that an attacker learns nothing.
    #[error("the token of the host is not valid")]
    InvalidHostToken,
    /// The token is valid, but its key is not that of the host, or of any.
    #[error("no such host is registered with the key of the token")]
    UnknownHost,
    #[error("{0}")]
    InvalidRequest(HostIdentityError),
    #[error("the certificate request has another key than the host; a new key needs a join token")]
    ForeignKey,
    #[error("the key belongs to a registered host, which proves it with a token of that key")]
    KeyTaken,
    #[error("the host is being changed by others")]
    Busy,
    #[error("cannot issue a certificate: {0}")]
    Certificate(HostIdentityError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service of registered hosts. Clones share its state.
#[derive(Clone)]
pub struct RegisteredHosts {
    pub(super) store: Store,
    pub(super) join_tokens: JoinTokens,
    pub(super) host_tokens: HostTokens,
    pub(super) authority: Arc<Authority>,
    /// The TLS settings of control as a client of hosts.
    tls: ClientConfig,
    pub(super) heartbeat_interval: Duration,
    /// Presents control's certificate.
    pub(super) client: AgentClient,
    pub(super) demand: HostDemand,
    /// Notified when a host has changed.
    pub(super) changed: Arc<Notify>,
}

impl RegisteredHosts {
    /// Returns the service, with a new certificate of control.
    pub fn new(
        store: Store,
        join_tokens: JoinTokens,
        authority: Authority,
        heartbeat_interval: Duration,
    ) -> Result<RegisteredHosts, HostIdentityError> {
        let tls = authority.client_config(Utc::now())?;
        Ok(RegisteredHosts {
            client: AgentClient::for_registered_hosts(tls.clone()),
            tls,
            demand: HostDemand::default(),
            changed: Arc::default(),
            store,
            join_tokens,
            host_tokens: HostTokens::default(),
            authority: Arc::new(authority),
            heartbeat_interval,
        })
    }

    /// Returns the time between two heartbeats of a host.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }

    /// Returns the TLS settings with which control connects to hosts.
    pub fn tls(&self) -> &ClientConfig {
        &self.tls
    }

    /// Returns a client that reaches the hosts.
    pub fn client(&self) -> &AgentClient {
        &self.client
    }

    /// Returns the demand for hosts.
    pub fn demand(&self) -> &HostDemand {
        &self.demand
    }

    /// Returns the signal that a host may have changed.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Checks that control reaches the agent of a host at its address, and that its browser
    /// responds.
    pub(super) async fn check_reachable(&self, row: &RegisteredHostRow) -> Result<(), AgentError> {
        self.client.wait_ready(&endpoint(row), REACH_TIMEOUT).await
    }

    /// Lists hosts, newest first, with one more than the limit if there are more.
    pub async fn list(
        &self,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<RegisteredHostRow>, FleetError> {
        Ok(self.store.list_registered_hosts(offset, limit).await?)
    }

    /// Returns the endpoints of those of the newest `limit` hosts whose browsers can respond.
    pub async fn newest_agents(&self, limit: u64) -> Result<Vec<AgentEndpoint>, StoreError> {
        let rows = self.store.list_registered_hosts(0, limit).await?;
        let responds =
            |row: &&RegisteredHostRow| matches!(row.life.state, State::Ready | State::Leased);
        Ok(rows.iter().filter(responds).map(endpoint).collect())
    }

    /// Marks a host to get no further session. Succeeds if it is marked already.
    pub async fn drain(&self, id: &HostId) -> Result<RegisteredHostRow, FleetError> {
        let drain = |life: &HostLife| match life.is_draining {
            true => None,
            false => life.apply(Event::Drain).ok().map(|(next, _)| next),
        };
        self.change(id, drain).await
    }

    /// Ends a host, whose identity and session are void from now on. The agent is asked to end the
    /// session; it may not respond.
    pub async fn delete(&self, id: &HostId) -> Result<(), FleetError> {
        let had_session = self.find(id).await?.life.session.is_some();
        let stop = |life: &HostLife| life.apply(Event::Stopped).ok().map(|(next, _)| next);
        let row = self.change(id, stop).await?;
        if had_session {
            let (endpoint, generation) = (endpoint(&row), row.life.generation);
            let ended = self
                .client
                .end_session(&endpoint, generation, END_SESSION_TIMEOUT);
            if let Err(error) = ended.await {
                tracing::warn!(host = %id, %error, "cannot end the session of a deleted host");
            }
        }
        Ok(())
    }

    /// Changes the life of a host. A change that returns `None` has no effect.
    async fn change(
        &self,
        id: &HostId,
        change: impl Fn(&HostLife) -> Option<HostLife>,
    ) -> Result<RegisteredHostRow, FleetError> {
        for _ in 0..MAX_ATTEMPTS {
            let mut row = self.find(id).await?;
            let Some(next) = change(&row.life) else {
                return Ok(row);
            };
            if self
                .store
                .change_host(&row.id, &row.life, &next, Utc::now())
                .await?
            {
                tracing::info!(host = %row.id, from = ?row.life.state, to = ?next.state, "host changed");
                self.changed.notify_one();
                row.life = next;
                return Ok(row);
            }
        }
        Err(FleetError::Busy)
    }

    /// Records a report of a host: its machine, and its life after the report, which `report`
    /// derives from the row. Returns the host as it is afterwards.
    pub(super) async fn record_report(
        &self,
        mut row: RegisteredHostRow,
        report: impl Fn(&RegisteredHostRow) -> (HostMachine, HostLife),
    ) -> Result<RegisteredHostRow, FleetError> {
        for _ in 0..MAX_ATTEMPTS {
            let (machine, life) = report(&row);
            let recorded = self
                .store
                .record_host_report(&row, &machine, &life, Utc::now());
            if recorded.await? {
                if life != row.life {
                    tracing::info!(host = %row.id, from = ?row.life.state, to = ?life.state, "host changed");
                }
                if life != row.life || machine != row.machine {
                    self.changed.notify_one();
                }
                return Ok(RegisteredHostRow {
                    life,
                    machine,
                    ..row
                });
            }
            row = self.find(&row.id).await?;
        }
        Err(FleetError::Busy)
    }

    pub(super) async fn find(&self, id: &HostId) -> Result<RegisteredHostRow, FleetError> {
        let found = self.store.find_registered_host(id).await?;
        found.ok_or(FleetError::NotFound)
    }
}

/// Returns the endpoint of a host's agent, for requests of no session.
fn endpoint(row: &RegisteredHostRow) -> AgentEndpoint {
    AgentEndpoint {
        address: row.machine.address,
        access: AgentAccess::Certificate(row.id.clone()),
        generation: None,
    }
}

/// Returns the life of a host after an event, or the same one if the event is impossible.
pub(super) fn applied(life: &HostLife, event: Event) -> HostLife {
    match life.apply(event) {
        Ok((next, _)) => next,
        Err(_) => life.clone(),
    }
}

/// Returns the life of a host whose machine lost its session, such as by a reboot.
pub(super) fn without_session(life: &HostLife) -> HostLife {
    let missed = match life.state {
        State::Starting => life.clone(),
        _ => applied(life, Event::Missed),
    };
    returned(&missed)
}

/// Returns the life of a host that reports, after it may have been lost.
pub(super) fn returned(life: &HostLife) -> HostLife {
    applied(life, Event::Returned)
}
