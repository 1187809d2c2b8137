//! Drives a login: performs what its flow waits for, and stores what follows.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::{sync::watch, time::sleep};

use super::{
    Inner, Logins,
    actions::{Action, Memory, creation_of},
};
use crate::{
    api::ids::FlowId,
    backoff::Backoff,
    control::{
        auth_connections::flow::{Effect, FlowEvent, PageAction},
        store::{AuthConnectionRow, AuthFlowRow, StoreError},
    },
};

/// The interval at which the row is read without a notification: one of another process may be
/// lost.
const ROW_INTERVAL: Duration = Duration::from_secs(2);
/// The first and the longest delay after a failure of the database.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// The step of a driver.
enum Step {
    /// The flow has changed, or is to be looked at again.
    Continue,
    /// The driver has nothing more to do.
    Finish,
}

impl Logins {
    /// Drives a flow in a task of its own, unless one of this process does.
    pub(super) fn spawn_driver(&self, id: FlowId) {
        if !self.inner.driven.lock().insert(id.clone()) {
            return;
        }
        let driven = DrivenFlow {
            inner: self.inner.clone(),
            id,
        };
        let shutdown = &self.inner.parts.shutdown;
        shutdown.spawn(async move { driven.inner.drive(&driven.id).await });
    }
}

/// A flow that a task drives, until the task ends or fails.
struct DrivenFlow {
    inner: Arc<Inner>,
    id: FlowId,
}

impl Drop for DrivenFlow {
    fn drop(&mut self) {
        self.inner.driven.lock().remove(&self.id);
    }
}

impl Inner {
    async fn drive(&self, id: &FlowId) {
        let mut changes = self.parts.store.flow_changes().subscribe(id);
        let mut memory = Memory::default();
        let mut last = None;
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        while !self.parts.shutdown.is_requested() {
            let step = self.take_step(id, (&mut memory, &mut last), &mut changes);
            match step.await {
                Ok(Step::Continue) => delays.reset(),
                Ok(Step::Finish) => return,
                Err(error) => {
                    tracing::error!(flow = %id, %error, "cannot continue a login yet");
                    self.parts.shutdown.sleep(delays.next_delay()).await;
                }
            }
        }
    }

    /// Performs the present action of a flow, until it has an event or the flow has changed.
    async fn take_step(
        &self,
        id: &FlowId,
        (memory, last): (&mut Memory, &mut Option<AuthFlowRow>),
        changes: &mut watch::Receiver<()>,
    ) -> Result<Step, StoreError> {
        let store = &self.parts.store;
        changes.mark_unchanged();
        let Some(row) = store.find_auth_flow(id).await? else {
            // The connection was deleted.
            if let Some(row) = last {
                self.end_browser(row).await;
            }
            return Ok(Step::Finish);
        };
        *last = Some(row.clone());
        if row.driver != store.process() {
            return Ok(Step::Finish);
        }
        let connection = store.find_auth_connection(&row.project_id, &row.connection_id);
        let connection = connection.await?;
        let Some(connection) = connection.filter(|_| row.ended_at.is_none()) else {
            self.end_browser(&row).await;
            return Ok(Step::Finish);
        };
        let event = tokio::select! {
            biased;
            () = self.parts.shutdown.requested() => return Ok(Step::Continue),
            event = self.perform(&row, &connection, memory) => event,
            () = sleep_until(row.flow.deadline()) => FlowEvent::Timer,
            () = self.changed(&row, changes) => return Ok(Step::Continue),
        };
        self.advance_surely(&row, &event, memory).await;
        Ok(Step::Continue)
    }

    async fn perform(
        &self,
        row: &AuthFlowRow,
        connection: &AuthConnectionRow,
        memory: &mut Memory,
    ) -> FlowEvent {
        let mut action = Action {
            services: self,
            row,
            connection,
            memory,
        };
        action.perform(row.flow.effect()).await
    }

    /// Stores the consequence of an event, however often that fails: the action must not be
    /// repeated, because values may have been entered. At a shutdown the action counts as
    /// interrupted.
    async fn advance_surely(&self, row: &AuthFlowRow, event: &FlowEvent, memory: &Memory) {
        let mut delays = Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1);
        while let Err(error) = self.advance(row.clone(), event.clone(), memory).await {
            tracing::error!(flow = %row.id(), %error, "cannot store the state of a login yet");
            if !self.parts.shutdown.sleep(delays.next_delay()).await {
                return;
            }
        }
    }

    /// Stores the consequence of an event. It is dropped if the flow has changed meanwhile.
    async fn advance(
        &self,
        mut row: AuthFlowRow,
        event: FlowEvent,
        memory: &Memory,
    ) -> Result<(), StoreError> {
        let is_page = matches!(event, FlowEvent::PageFound(_));
        let now = Utc::now();
        let transition = row.flow.apply(event, now);
        if is_page && transition.effect.as_ref().is_some_and(leaves_page) {
            row.page_mark = memory.page_mark();
        }
        if row.replay_id.is_none() {
            row.replay_id = memory.replay().cloned();
        }
        if transition.flow == row.flow {
            return Ok(());
        }
        self.parts
            .store
            .advance_auth_flow(row, &transition, now)
            .await?;
        Ok(())
    }

    /// Resolves when the row of a flow has changed.
    async fn changed(&self, row: &AuthFlowRow, changes: &mut watch::Receiver<()>) {
        loop {
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(ROW_INTERVAL) => {}
            }
            match self.parts.store.find_auth_flow(row.id()).await {
                Ok(Some(found)) if found.version == row.version => {}
                Ok(_) => return,
                Err(error) => tracing::warn!(flow = %row.id(), %error, "cannot read a login"),
            }
        }
    }

    /// Ends the browser of a flow that has ended, also one that the flow does not know yet.
    async fn end_browser(&self, row: &AuthFlowRow) {
        let id = match row.flow.browser() {
            Some(id) => id.clone(),
            None => match self
                .parts
                .browsers
                .find_repeated(&row.project_id, &creation_of(row))
                .await
            {
                Ok(Some(found)) => found.id,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(flow = %row.id(), %error, "cannot find the browser of a login");
                    return;
                }
            },
        };
        self.parts.end_browser(&row.project_id, &id).await;
    }
}

/// Returns whether later pages are compared with the one that an action begins on.
fn leaves_page(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::FillFromCredential { .. }
            | Effect::EnterAnswers { .. }
            | Effect::WatchPage
            | Effect::Act(PageAction::Choose { .. })
    )
}

async fn sleep_until(deadline: Option<DateTime<Utc>>) {
    match deadline {
        Some(deadline) => sleep((deadline - Utc::now()).to_std().unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}
