//! Saves and loads in progress. Each has a row, by which the other processes know it.

use std::{collections::HashSet, time::Duration};

use ulid::Ulid;

use super::Profiles;
use crate::control::{
    processes::Leadership,
    store::{ControlProcessId, StoreError},
};

/// Between two passes over the rows.
const PASS_INTERVAL: Duration = Duration::from_secs(2);

/// An operation of this process. Dropping it ends the operation.
pub(super) struct Operation {
    profiles: Profiles,
    id: String,
    /// Whether the row is gone already.
    has_ended: bool,
}

impl Operation {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Notes that the operation has no row any more.
    pub(super) fn set_ended(mut self) {
        self.has_ended = true;
    }

    /// Ends the operation.
    pub(super) async fn end(self) {
        let (profiles, id) = (self.profiles.clone(), self.id.clone());
        self.set_ended();
        profiles.end_operation(&id).await;
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.profiles.set_inactive(&self.id);
        if self.has_ended {
            return;
        }
        let (profiles, id) = (self.profiles.clone(), std::mem::take(&mut self.id));
        let shutdown = self.profiles.inner.shutdown.clone();
        shutdown.spawn(async move { profiles.end_operation(&id).await });
    }
}

impl Profiles {
    /// Returns a new operation, which has no row yet.
    pub(super) fn new_operation(&self) -> Operation {
        let id = Ulid::generate().to_string();
        // Before it has a row, or a pass could end it.
        self.set_active(&id);
        Operation {
            profiles: self.clone(),
            id,
            has_ended: false,
        }
    }

    pub(super) fn set_active(&self, id: &str) -> bool {
        self.inner.active.lock().insert(id.to_owned())
    }

    pub(super) fn set_inactive(&self, id: &str) {
        self.inner.active.lock().remove(id);
    }

    fn is_active(&self, id: &str) -> bool {
        self.inner.active.lock().contains(id)
    }

    /// Removes the row of an operation. If that fails, a pass repeats it.
    async fn end_operation(&self, id: &str) {
        if let Err(error) = self.inner.store.end_profile_operation(id).await {
            tracing::warn!(operation = id, %error, "cannot record the end of an operation yet");
        }
    }

    /// Ends the operations of processes that do not run, if this process leads. Must run before the
    /// first request.
    pub async fn recover(&self, leadership: &Leadership) -> Result<(), StoreError> {
        if leadership.leads() {
            let live = self.inner.store.live_processes().await?;
            self.end_operations(&live).await?;
        }
        Ok(())
    }

    /// Ends what this process could not end, and whenever this process leads what others left that
    /// died, and removes archives that no version has, until shutdown.
    pub async fn maintain(self, leadership: Leadership) {
        let mut last_live = None;
        while self.inner.shutdown.sleep(PASS_INTERVAL).await {
            match self.pass(leadership.leads(), last_live.take()).await {
                Ok(live) => last_live = live,
                Err(error) => tracing::error!(%error, "cannot find abandoned saves of profiles"),
            }
        }
    }

    /// Returns the processes that run, if this one leads.
    async fn pass(
        &self,
        leads: bool,
        last_live: Option<HashSet<ControlProcessId>>,
    ) -> Result<Option<HashSet<ControlProcessId>>, StoreError> {
        let own = self.inner.store.process();
        // In this order: a process that starts in between is alive.
        let operations = self.inner.store.profile_operations().await?;
        let removals = self.inner.store.blob_removals().await?;
        for (id, process) in &operations {
            if *process == own && !self.is_active(id) {
                self.end_operation(id).await;
            }
        }
        for removal in &removals {
            if removal.process == own {
                self.finish_removal(removal).await?;
            }
        }
        if !leads {
            return Ok(None);
        }
        let live = self.inner.store.live_processes().await?;
        // Otherwise the locks of this process are lost, as perhaps those of the others.
        if own.is_none_or(|own| !live.contains(&own)) {
            return Ok(None);
        }
        if let Some(last_live) = last_live {
            // One that acquires its locks again is missing in a pass or two.
            let live: HashSet<ControlProcessId> = live.union(&last_live).copied().collect();
            self.end_operations(&live).await?;
        }
        Ok(Some(live))
    }

    /// Ends the operations of processes that are none of `live`.
    pub(super) async fn end_operations(
        &self,
        live: &HashSet<ControlProcessId>,
    ) -> Result<(), StoreError> {
        let Self { inner } = self;
        let is_dead =
            |process: Option<ControlProcessId>| process.is_none_or(|id| !live.contains(&id));
        for (id, process) in inner.store.profile_operations().await? {
            if is_dead(process) {
                tracing::info!(
                    operation = id,
                    "ended the save, load or attachment of a process that died"
                );
                inner.store.end_profile_operation(&id).await?;
            }
        }
        for removal in inner.store.blob_removals().await? {
            if is_dead(removal.process) {
                self.finish_removal(&removal).await?;
            }
        }
        Ok(())
    }
}
