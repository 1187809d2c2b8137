//! DevTools clients of Chromium: limits their number, holds them while Chromium restarts, and
//! reports when their Chromium has gone.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::chromium::{BrowserState, Chromium, Devtools, NotReady};

/// Why a DevTools client is turned away.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error("DevTools client limit reached ({0})")]
    Full(usize),
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

/// The admission control for DevTools clients.
#[derive(Clone)]
pub struct CdpClients {
    chromium: Chromium,
    connections: Arc<Semaphore>,
    /// Permits for HTTP queries (`/json`). They are short, but may be held like a connection.
    queries: Arc<Semaphore>,
    limit: usize,
    hold_timeout: Duration,
}

/// A permit for one connected client. Dropping it frees the slot.
pub struct ClientPermit {
    _permit: OwnedSemaphorePermit,
}

/// A permit for one HTTP query. Dropping it frees the slot.
pub struct QueryPermit {
    _permit: OwnedSemaphorePermit,
}

/// A client that may connect to Chromium.
pub struct Admitted {
    pub devtools: Arc<Devtools>,
    pub permit: ClientPermit,
}

/// The time until which one client is held, however often Chromium dies meanwhile.
#[derive(Clone, Copy)]
pub struct HoldDeadline {
    at: Instant,
    timeout: Duration,
}

impl CdpClients {
    pub(super) fn new(chromium: Chromium, limit: usize, hold_timeout: Duration) -> Self {
        Self {
            chromium,
            connections: Arc::new(Semaphore::new(limit)),
            queries: Arc::new(Semaphore::new(limit)),
            limit,
            hold_timeout,
        }
    }

    /// Returns the number of connected or waiting clients.
    pub fn count(&self) -> usize {
        self.limit - self.connections.available_permits()
    }

    /// Acquires a permit, then waits until Chromium is ready. The permit is acquired first so that
    /// the number of waiting clients is bounded as well.
    pub async fn admit(&self) -> Result<Admitted, AdmitError> {
        let permit = ClientPermit::new(self.acquire(&self.connections)?);
        let devtools = self.chromium.ready(self.hold_timeout).await?;
        Ok(Admitted { devtools, permit })
    }

    /// Acquires a permit for one HTTP query.
    pub fn admit_query(&self) -> Result<QueryPermit, AdmitError> {
        let permit = self.acquire(&self.queries)?;
        Ok(QueryPermit { _permit: permit })
    }

    fn acquire(&self, semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, AdmitError> {
        let permit = semaphore.clone().try_acquire_owned();
        permit.map_err(|_| AdmitError::Full(self.limit))
    }

    /// Returns the deadline of a client that is held from now on.
    pub fn hold_deadline(&self) -> HoldDeadline {
        HoldDeadline {
            at: Instant::now() + self.hold_timeout,
            timeout: self.hold_timeout,
        }
    }

    /// Waits for the Chromium that replaces `dead`, a Chromium that turned out to be dead. (Its
    /// sockets do not all close at once: it may still accept a connection that it never answers.)
    pub async fn wait_for_successor(
        &self,
        dead: &Devtools,
        deadline: HoldDeadline,
    ) -> Result<Arc<Devtools>, NotReady> {
        let remaining_time = deadline.at.saturating_duration_since(Instant::now());
        let successor = self.chromium.ready_after(dead.generation, remaining_time);
        successor.await.map_err(|error| match error {
            NotReady::Timeout(_) => NotReady::Timeout(deadline.timeout),
            error => error,
        })
    }

    /// Waits until the Chromium of this generation has gone, and returns the reason.
    pub async fn wait_until_gone(&self, generation: u64) -> String {
        let mut state = self.chromium.watch();
        let gone = state
            .wait_for(|state| {
                state.devtools().map(|devtools| devtools.generation) != Some(generation)
            })
            .await;
        match gone.as_deref() {
            Ok(BrowserState::Restarting { reason }) => format!("Chromium restarted: {reason}"),
            Ok(BrowserState::Stopped) | Err(_) => "Chromium stopped".to_owned(),
            Ok(_) => "Chromium restarted".to_owned(),
        }
    }
}

impl ClientPermit {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_cdp_clients").increment(1.0);
        Self { _permit: permit }
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        metrics::gauge!("berth_cdp_clients").decrement(1.0);
    }
}
