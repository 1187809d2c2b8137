//! A host as the services of control use it, and the controller through which a fleet runs it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::agent_client::{AgentAccess, AgentClient, AgentEndpoint, AgentError};
use crate::{
    api::{ids::HostId, session::SessionReceipt},
    control::store::Fleet,
};

/// Between two polls of an agent whose browser is not ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for an agent that is being restarted before the end of a session, and again for
/// its receipt: recordings are finished, and processes get some seconds.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether and where a host's agent accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    Listening(SocketAddr),
    /// The agent ended and is being started again, possibly at another address.
    Restarting,
    /// A local host was stopped or given up, and its data is removed or about to be. A registered
    /// one has lost its session. This state is final.
    Gone,
}

/// Why a host does not serve requests.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    #[error("the host is gone")]
    Gone,
    #[error("the host is not ready: {0}")]
    NotReady(String),
}

/// A host: one agent with its display and Chromium. Dropping it requests the stop of a local one.
pub struct Host {
    id: HostId,
    access: AgentAccess,
    state: watch::Receiver<HostState>,
    stop: CancellationToken,
    shared: Arc<Shared>,
    client: AgentClient,
}

/// The fleet's side of a [`Host`]. Dropping it marks the host as gone.
pub struct HostController {
    state: watch::Sender<HostState>,
    stop: CancellationToken,
    shared: Arc<Shared>,
}

struct Shared {
    was_ready: AtomicBool,
    /// Cancelled when the host's data is removed.
    data_removed: CancellationToken,
}

impl Host {
    /// Returns a host whose agent listens at `address`, with the controller for its fleet.
    pub fn new(
        id: HostId,
        address: SocketAddr,
        access: AgentAccess,
        client: AgentClient,
    ) -> (Host, HostController) {
        let (sender, receiver) = watch::channel(HostState::Listening(address));
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            was_ready: AtomicBool::new(false),
            data_removed: CancellationToken::new(),
        });
        let controller = HostController {
            state: sender,
            stop: stop.clone(),
            shared: shared.clone(),
        };
        let host = Host {
            id,
            access,
            state: receiver,
            stop,
            shared,
            client,
        };
        (host, controller)
    }

    pub fn id(&self) -> &HostId {
        &self.id
    }

    /// Returns the fleet that runs the host.
    pub fn fleet(&self) -> Fleet {
        match self.access {
            AgentAccess::Token(_) => Fleet::Local,
            AgentAccess::Certificate(_) => Fleet::Registered,
        }
    }

    /// Returns the client for the host's agent.
    pub(in crate::control) fn client(&self) -> &AgentClient {
        &self.client
    }

    /// Returns the address of the agent, waiting up to `timeout` while it is being restarted.
    pub async fn address(&self, timeout: Duration) -> Result<SocketAddr, HostError> {
        let listening = async {
            let mut state = self.state.clone();
            loop {
                match *state.borrow_and_update() {
                    HostState::Listening(address) => return Ok(address),
                    HostState::Gone => return Err(HostError::Gone),
                    HostState::Restarting => {}
                }
                // A dropped controller means that the fleet no longer runs the host.
                if state.changed().await.is_err() {
                    return Err(HostError::Gone);
                }
            }
        };
        match tokio::time::timeout(timeout, listening).await {
            Ok(address) => address,
            Err(_) => Err(HostError::NotReady("the agent is being restarted".into())),
        }
    }

    /// Waits up to `timeout` until the browser's DevTools respond in the session of this
    /// generation.
    pub async fn wait_ready(&self, generation: u64, timeout: Duration) -> Result<(), HostError> {
        let started = Instant::now();
        let mut reason = String::from("no response from the agent");
        loop {
            let remaining = timeout.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                return Err(HostError::NotReady(reason));
            }
            let address = self.address(remaining).await?;
            let agent = self.endpoint_at(address, Some(generation));
            let ready = tokio::select! {
                ready = self.client.wait_ready(&agent, remaining) => ready,
                () = self.address_changed(address) => continue,
            };
            match ready {
                Ok(()) => {
                    self.shared.was_ready.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => reason = error.to_string(),
            }
            let remaining = timeout.saturating_sub(started.elapsed());
            tokio::time::sleep(READY_POLL_INTERVAL.min(remaining)).await;
        }
    }

    /// Ends the session of a generation. What it had is gone when this returns.
    pub async fn end_session(&self, generation: u64) -> Result<SessionReceipt, AgentError> {
        // The request names the session itself, and may be repeated after its end.
        let agent = self.agent(None, END_SESSION_TIMEOUT).await?;
        let ended = self
            .client
            .end_session(&agent, generation, END_SESSION_TIMEOUT);
        ended.await
    }

    /// Makes the session of a generation end, and returns when no request reaches it any more.
    /// [`Self::end_session`] waits for its end.
    pub async fn refuse_session(&self, generation: u64) -> Result<(), AgentError> {
        let agent = self.agent(None, END_SESSION_TIMEOUT).await?;
        let refused = self
            .client
            .refuse_session(&agent, generation, END_SESSION_TIMEOUT);
        refused.await
    }

    /// Returns the endpoint of the agent for requests of one session, or of none, waiting up to
    /// `timeout` while the agent is being restarted.
    pub(in crate::control) async fn endpoint(
        &self,
        generation: Option<u64>,
        timeout: Duration,
    ) -> Result<AgentEndpoint, HostError> {
        let address = self.address(timeout).await?;
        Ok(self.endpoint_at(address, generation))
    }

    /// Returns the endpoint of the agent like [`Self::endpoint`].
    pub(super) async fn agent(
        &self,
        generation: Option<u64>,
        timeout: Duration,
    ) -> Result<AgentEndpoint, AgentError> {
        let endpoint = self.endpoint(generation, timeout).await;
        endpoint.map_err(|error| AgentError::Unreachable(error.to_string()))
    }

    fn endpoint_at(&self, address: SocketAddr, generation: Option<u64>) -> AgentEndpoint {
        AgentEndpoint {
            address,
            access: self.access.clone(),
            generation,
        }
    }

    /// Stops a local host and resolves when it is gone.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.wait_gone().await;
    }

    /// Resolves when the host is gone: stopped, given up, or without the session of this handle.
    pub async fn wait_gone(&self) {
        let mut state = self.state.clone();
        // An error means that the fleet has dropped the controller, so the host is gone, too.
        let _ = state.wait_for(|state| *state == HostState::Gone).await;
    }

    /// Returns whether the host is gone.
    pub fn is_gone(&self) -> bool {
        *self.state.borrow() == HostState::Gone
    }

    /// Returns the token that is cancelled when the data of the gone host is removed and its
    /// recordings are saved.
    pub fn data_removed(&self) -> &CancellationToken {
        &self.shared.data_removed
    }

    /// Resolves when the agent no longer listens at `address`.
    async fn address_changed(&self, address: SocketAddr) {
        let mut state = self.state.clone();
        let _ = state
            .wait_for(|state| *state != HostState::Listening(address))
            .await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Drop for HostController {
    fn drop(&mut self) {
        self.set_state(HostState::Gone);
    }
}

impl HostController {
    /// Publishes the state of the host.
    pub fn set_state(&self, state: HostState) {
        self.state.send_if_modified(|current| {
            let is_changed = *current != state;
            *current = state;
            is_changed
        });
    }

    /// Resolves when the host must stop.
    pub async fn stop_requested(&self) {
        self.stop.cancelled().await;
    }

    /// Returns whether the browser has ever been ready. Until then the end of an agent is a failed
    /// start, which is not retried.
    pub fn was_ready(&self) -> bool {
        self.shared.was_ready.load(Ordering::Relaxed)
    }

    /// Returns the token to cancel when the host's data is removed.
    pub fn data_removed(&self) -> CancellationToken {
        self.shared.data_removed.clone()
    }
}
