//! Clients of Chromium's DevTools: counted, held while Chromium is away, and told when it goes.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::chromium::{BrowserState, Chromium, Devtools, NotReady};

#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error("{0} DevTools clients are connected, which is the limit")]
    Full(usize),
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

#[derive(Clone)]
pub struct Clients {
    chromium: Chromium,
    places: Arc<Semaphore>,
    /// For questions over HTTP, which are short but may be held like a connection.
    questions: Arc<Semaphore>,
    limit: usize,
    hold: Duration,
}

/// One client's place; it is free again when this is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

/// A client that may go to Chromium.
pub struct Admitted {
    pub devtools: Arc<Devtools>,
    pub place: Place,
}

/// How long one client is held, however often Chromium dies meanwhile.
#[derive(Clone, Copy)]
pub struct Hold {
    until: Instant,
    whole: Duration,
}

impl Clients {
    pub fn new(chromium: Chromium, limit: usize, hold: Duration) -> Self {
        Self {
            chromium,
            places: Arc::new(Semaphore::new(limit)),
            questions: Arc::new(Semaphore::new(limit)),
            limit,
            hold,
        }
    }

    /// Gives a place, then waits until Chromium answers. Who waits holds a place too, so that their number is bounded as well.
    pub async fn admit(&self) -> Result<Admitted, AdmitError> {
        let permit = self
            .places
            .clone()
            .try_acquire_owned()
            .map_err(|_| AdmitError::Full(self.limit))?;
        let place = Place::taken(permit);
        let devtools = self.chromium.ready(self.hold).await?;
        Ok(Admitted { devtools, place })
    }

    /// Begins to hold a client.
    pub fn hold(&self) -> Hold {
        Hold {
            until: Instant::now() + self.hold,
            whole: self.hold,
        }
    }

    /// The Chromium after one that turned out to be dead. (Its sockets do not all close at once: it may still take a connection that it will
    /// never answer.)
    pub async fn after(&self, dead: &Devtools, hold: Hold) -> Result<Arc<Devtools>, NotReady> {
        let left = hold.until.saturating_duration_since(Instant::now());
        self.chromium
            .ready_after(dead.generation, left)
            .await
            .map_err(|error| match error {
                NotReady::Deadline(_) => NotReady::Deadline(hold.whole),
                error => error,
            })
    }

    /// The right to ask one question over HTTP.
    pub fn question(&self) -> Result<OwnedSemaphorePermit, AdmitError> {
        self.questions
            .clone()
            .try_acquire_owned()
            .map_err(|_| AdmitError::Full(self.limit))
    }

    /// Resolves with the reason once this Chromium is no longer there.
    pub async fn gone(&self, generation: u64) -> String {
        let mut state = self.chromium.watch();
        let found = state
            .wait_for(|state| {
                state.devtools().map(|devtools| devtools.generation) != Some(generation)
            })
            .await;
        match found.as_deref() {
            Ok(BrowserState::Restarting { reason }) => format!("Chromium restarted: {reason}"),
            Ok(BrowserState::Stopped) | Err(_) => "Chromium stopped".to_owned(),
            Ok(_) => "Chromium restarted".to_owned(),
        }
    }
}

impl Place {
    fn taken(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_cdp_clients").increment(1.0);
        Self { _permit: permit }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!("berth_cdp_clients").decrement(1.0);
    }
}
