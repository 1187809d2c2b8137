//! The registration of the agent at control, as a host of its fleet.
//!
//! ```text
//! start ──▶ register ──▶ TLS settings ──▶ heartbeats ──▶ register again: the certificate is half
//!              ▲  │ refused: back-off                    expired, or control does not know the
//!              └──┘                                      host any more
//! ```
//!
//! An agent that is to be started again reports that, and ends once control says that no session
//! uses the host and that it gets none.
//!
//! The agent creates a key pair in its state directory, once. It registers with a join token, and
//! from then on with a token that is signed with its key. Only if control says that it does not
//! know the key does the agent end its session, and joins as another host. Anything else, such as
//! the 401 of a proxy or of a wrong clock, is tried again and keeps the session.
//!
//! The agent of a [`template`] registers only after its machine was resumed from a snapshot.

mod control_client;
mod key_file;
mod machine;
mod own_address;
mod template;

use std::{future::pending, io, net::SocketAddr, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use http::StatusCode;
use rustls::ServerConfig;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};
use url::Url;

use self::{
    control_client::{ControlClient, ControlRequestError},
    own_address::OwnAddress,
    template::Template,
};
use super::{
    AgentError,
    replays::ReplayError,
    sessions::{EndError, Sessions},
    settings::{Config, ControlConfig},
};
use crate::{
    api::{
        fleet::{HeartbeatAnswer, HostPhase, HostRegistration, UNKNOWN_HOST},
        ids::HostId,
    },
    backoff::Backoff,
    shutdown::Shutdown,
    system::{
        identity::{HostIdentityError, HostKey, TokenAudience},
        process::boot::BootTime,
    },
};

/// The first and the longest delay before a failed request is repeated.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The delay between two heartbeats until the browser responds, or the agent can be started again.
const START_DELAY: Duration = Duration::from_secs(1);

/// The first delay on a machine that was just resumed, whose network is up in a moment.
const RESUMED_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The TLS settings of the agent's server. `None` until control has issued a certificate.
type ServerTls = Option<Arc<ServerConfig>>;

/// The registration, for status reports.
#[derive(Clone, Debug)]
pub(super) enum RegistrationState {
    /// The machine has not been resumed from a snapshot.
    Template,
    /// No request has been answered yet.
    Pending,
    Registered(HostId),
    /// The last request failed.
    Failing(Arc<str>),
}

/// The parts of the registration that the agent uses.
pub(super) struct RegistrationHandle {
    pub(super) tls: watch::Receiver<ServerTls>,
    pub(super) state: watch::Receiver<RegistrationState>,
}

/// Why a registration or a heartbeat failed.
#[derive(Debug, thiserror::Error)]
enum RegistrationError {
    #[error(transparent)]
    Control(#[from] ControlRequestError),
    #[error("no route to control: {0}")]
    Address(io::Error),
    #[error(transparent)]
    Identity(#[from] HostIdentityError),
    #[error("cannot end the session of the earlier identity: {0}")]
    Session(#[from] EndError),
    #[error("cannot delete a recording of the earlier identity: {0}")]
    Recording(#[from] ReplayError),
    #[error(
        "this machine cannot join as another host, because {0}: \
         replace it, or start the agent on a new machine with a new state directory"
    )]
    MachineTainted(String),
}

impl RegistrationError {
    /// Returns whether control itself says that it does not know the host.
    fn is_unknown_host(&self) -> bool {
        let Self::Control(ControlRequestError::Rejected { status, code, .. }) = self else {
            return false;
        };
        *status == StatusCode::UNAUTHORIZED && code == UNKNOWN_HOST
    }
}

/// The task that registers the agent and reports to control.
pub(super) struct Registration {
    client: ControlClient,
    key: HostKey,
    /// Whether control cannot know the key yet.
    is_new_key: bool,
    /// Whether no client can have used the current session.
    is_session_unused: bool,
    /// Whether this process has registered, and a client may use its session since.
    is_registered: bool,
    join_token: Option<SecretString>,
    control_url: Url,
    address: OwnAddress,
    boot_id: String,
    capabilities: Value,
    sessions: Sessions,
    tls: watch::Sender<ServerTls>,
    state_sender: watch::Sender<RegistrationState>,
    delays: Backoff,
}

/// A registration that has not started.
struct PendingRegistration {
    config: Config,
    listen: SocketAddr,
    sessions: Sessions,
    shutdown: Shutdown,
    tls: watch::Sender<ServerTls>,
    state_sender: watch::Sender<RegistrationState>,
}

/// A successful registration.
struct CurrentRegistration {
    host: HostId,
    heartbeat_interval: Duration,
    renew_at: DateTime<Utc>,
}

impl PendingRegistration {
    /// Reads the key of the host, creates it if there is none, and registers in the background.
    fn start(
        self,
        control: ControlConfig,
        boot_id: String,
        delays: Backoff,
    ) -> Result<(), AgentError> {
        let (key, is_new_key) = key_file::open(&self.config.state_dir)?;
        let registration = Registration {
            client: ControlClient::new(&control.url)?,
            key,
            is_new_key,
            is_session_unused: !self.sessions.are_continued(),
            is_registered: false,
            address: OwnAddress::new(&control, self.listen),
            control_url: control.url,
            join_token: control.join_token,
            boot_id,
            capabilities: machine::capabilities(&self.config)?,
            sessions: self.sessions,
            tls: self.tls,
            state_sender: self.state_sender,
            delays,
        };
        registration
            .state_sender
            .send_replace(RegistrationState::Pending);
        let stop = self.shutdown.clone();
        self.shutdown.spawn(async move {
            tokio::select! {
                () = registration.run() => {}
                () = stop.requested() => {}
            }
        });
        Ok(())
    }
}

impl Registration {
    /// Registers in the background until shutdown, at once or, on the machine of a template, after
    /// it was resumed. `listen` is the address that the agent listens on. Returns `None` if the
    /// agent does not register itself.
    ///
    /// # Errors
    /// Fails if the key or the properties of the machine cannot be read.
    pub(super) fn start(
        config: &Config,
        listen: SocketAddr,
        sessions: Sessions,
        shutdown: &Shutdown,
    ) -> Result<Option<RegistrationHandle>, AgentError> {
        let Some(control) = config.control.clone() else {
            return Ok(None);
        };
        let (tls, settings) = watch::channel(None);
        let (state_sender, state) = watch::channel(RegistrationState::Template);
        let pending = PendingRegistration {
            config: config.clone(),
            listen,
            sessions,
            shutdown: shutdown.clone(),
            tls,
            state_sender,
        };
        match control.is_template {
            true => Template::start(pending, control)?,
            false => {
                let delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
                pending.start(control, BootTime::now()?.boot_id, delays)?;
            }
        }
        Ok(Some(RegistrationHandle {
            tls: settings,
            state,
        }))
    }

    /// Registers and reports for ever.
    async fn run(mut self) {
        loop {
            match self.register().await {
                Ok(registered) => {
                    self.delays.reset();
                    tracing::info!(host = %registered.host, "registered at control");
                    self.set_registered(&registered.host);
                    self.report(&registered).await;
                }
                Err(error) => {
                    tracing::warn!("cannot register at control: {error}");
                    self.set_failing(&error);
                    let delay = self.delays.next_delay();
                    self.wait_to_register(delay, &error).await;
                }
            }
        }
    }

    /// Waits until the registration is repeated. Ends the agent if it is to be started again,
    /// unless a client may use its session.
    async fn wait_to_register(&self, delay: Duration, error: &RegistrationError) {
        let is_unused = !self.is_registered || error.is_unknown_host();
        tokio::select! {
            () = sleep(delay) => {}
            () = self.sessions.restart_requested(), if is_unused => {
                self.sessions.end_for_restart();
                pending().await
            }
        }
    }

    /// Registers with the own key, which keeps the identity, and with the join token only if
    /// control does not know the key.
    async fn register(&mut self) -> Result<CurrentRegistration, RegistrationError> {
        let Some(join_token) = self.join_token.clone() else {
            return self.register_with_own_key().await;
        };
        if !self.is_new_key {
            match self.register_with_own_key().await {
                // No client can reach its session any more.
                Err(error) if error.is_unknown_host() => self.is_registered = false,
                registered => return registered,
            }
        }
        self.leave_earlier_identity().await?;
        // Control may know the key from now on, even if its response is lost.
        self.is_new_key = false;
        self.register_with(&join_token).await
    }

    /// Ends the session that a client of an earlier identity may have used, and deletes the
    /// recordings of its sessions: the new identity must bring nothing of them, and control would
    /// not find their browsers.
    ///
    /// # Errors
    /// Fails if a session has changed the machine: what it did would outlive the earlier identity.
    async fn leave_earlier_identity(&mut self) -> Result<(), RegistrationError> {
        if !self.is_session_unused {
            self.sessions.end(self.sessions.status().generation).await?;
            self.is_session_unused = true;
        }
        match self.sessions.machine_taint().reason() {
            Some(reason) => Err(RegistrationError::MachineTainted(reason)),
            None => Ok(self.sessions.delete_all_replays().await?),
        }
    }

    async fn register_with_own_key(&mut self) -> Result<CurrentRegistration, RegistrationError> {
        let token = self.key.token(TokenAudience::Registration)?;
        self.register_with(&token.into()).await
    }

    async fn register_with(
        &mut self,
        credential: &SecretString,
    ) -> Result<CurrentRegistration, RegistrationError> {
        let address = self.address.get(&self.control_url).await;
        let address = address.map_err(RegistrationError::Address)?;
        let request = json!({
            "address": address.to_string(),
            "boot_id": self.boot_id,
            "certificate_request": self.key.certificate_request()?,
            "capabilities": self.capabilities,
            "version": env!("CARGO_PKG_VERSION"),
        });
        let path = "/fleet/hosts";
        let answer: HostRegistration = self.client.post(path, credential, &request).await?;
        let tls = self
            .key
            .server_config(&answer.certificate, &answer.ca_certificate)?;
        self.tls.send_replace(Some(Arc::new(tls)));
        self.is_session_unused = false;
        self.is_registered = true;
        let now = Utc::now();
        Ok(CurrentRegistration {
            host: answer.host_id,
            heartbeat_interval: Duration::from_secs(answer.heartbeat_interval_seconds.max(1)),
            renew_at: now + (answer.certificate_expires_at.0 - now) / 2,
        })
    }

    /// Sends heartbeats until the host has to register again.
    async fn report(&self, registered: &CurrentRegistration) {
        let interval = registered.heartbeat_interval;
        let mut delays = Backoff::new(RETRY_DELAY.0.min(interval), interval);
        let mut restarting = self.sessions.watch_restarting();
        let mut ends = self.sessions.watch_ends();
        let mut was_leased = false;
        while Utc::now() < registered.renew_at {
            ends.mark_unchanged();
            let is_restarting = *restarting.borrow_and_update();
            let is_ready = self.sessions.is_ready() && !is_restarting;
            let delay = match self
                .send_heartbeat(&registered.host, is_ready, is_restarting)
                .await
            {
                // No session has the host, and none gets it until it is ready again.
                Ok(answer) if is_restarting && answer.state == HostPhase::Starting => {
                    self.sessions.end_for_restart();
                    return pending().await;
                }
                Ok(answer) => {
                    self.set_registered(&registered.host);
                    delays.reset();
                    // Control ends an idle browser of a pool after the first such report.
                    let is_leased = is_restarting && answer.state == HostPhase::Leased;
                    if std::mem::replace(&mut was_leased, is_leased) && is_leased {
                        self.sessions.set_leased();
                    }
                    match is_ready || answer.state == HostPhase::Leased {
                        true => Duration::from_secs(answer.heartbeat_interval_seconds.max(1)),
                        false => START_DELAY.min(interval),
                    }
                }
                Err(error) if error.is_unknown_host() => {
                    tracing::warn!("control does not know this host any more: {error}");
                    self.set_failing(&error);
                    return sleep(delays.next_delay()).await;
                }
                Err(error) => {
                    tracing::warn!("cannot send a heartbeat: {error}");
                    self.set_failing(&error);
                    delays.next_delay()
                }
            };
            tokio::select! {
                () = sleep(delay) => {}
                Ok(()) = restarting.changed() => {}
                Ok(()) = ends.changed(), if is_restarting => {}
            }
        }
    }

    fn set_registered(&self, host: &HostId) {
        self.state_sender.send_if_modified(|state| {
            let is_changed =
                !matches!(state, RegistrationState::Registered(current) if current == host);
            *state = RegistrationState::Registered(host.clone());
            is_changed
        });
    }

    fn set_failing(&self, error: &RegistrationError) {
        let failing = RegistrationState::Failing(error.to_string().into());
        self.state_sender.send_replace(failing);
    }

    async fn send_heartbeat(
        &self,
        host: &HostId,
        is_ready: bool,
        is_restarting: bool,
    ) -> Result<HeartbeatAnswer, RegistrationError> {
        // Control leases no host that has not been ready, and gives up a leased one by itself.
        let is_usable = is_ready && self.sessions.machine_taint().reason().is_none();
        let mut report = json!({
            "boot_id": self.boot_id,
            "generation": self.sessions.status().generation,
            "ready": is_usable,
        });
        // Earlier versions of control do not know the field.
        if is_restarting {
            report["restarting"] = json!(true);
        }
        let token = SecretString::from(self.key.token(TokenAudience::Heartbeat)?);
        let path = format!("/fleet/hosts/{host}/heartbeat");
        Ok(self.client.post(&path, &token, &report).await?)
    }
}
