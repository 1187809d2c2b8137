//! Continues the logins of processes that have ended.

use std::time::Duration;

use chrono::{TimeDelta, Utc};

use super::Logins;
use crate::control::{
    auth_connections::flow::FlowEvent,
    store::{AuthFlowRow, StoreError},
};

/// The time in which the driver of a new login starts.
const START_TIME: TimeDelta = TimeDelta::seconds(30);
/// The interval at which logins without a driver are looked for.
const INTERVAL: Duration = Duration::from_secs(5);

impl Logins {
    /// Continues logins without a driver, now and regularly until shutdown.
    pub async fn adopt(self) {
        let shutdown = self.inner.parts.shutdown.clone();
        while !shutdown.is_requested() {
            if let Err(error) = self.adopt_orphans().await {
                tracing::error!(%error, "cannot find the logins of other processes");
            }
            shutdown.sleep(INTERVAL).await;
        }
    }

    async fn adopt_orphans(&self) -> Result<(), StoreError> {
        let store = &self.inner.parts.store;
        let driven = self.inner.driven.lock().clone();
        let mut flows = store.active_auth_flows().await?;
        flows.retain(|row| !driven.contains(row.id()));
        if flows.is_empty() {
            return Ok(());
        }
        let live = store.live_processes().await?;
        let now = Utc::now();
        let is_orphan = |row: &AuthFlowRow| match row.driver {
            // Its driver could not be started, or has failed.
            Some(driver) if Some(driver) == store.process() => now - row.created_at > START_TIME,
            Some(driver) => !live.contains(&driver),
            None => true,
        };
        for row in flows.into_iter().filter(is_orphan) {
            let id = row.id().clone();
            if let Err(error) = self.adopt_one(row).await {
                tracing::error!(flow = %id, %error, "cannot continue a login yet");
            }
        }
        Ok(())
    }

    /// Continues a login, or ends it if its browser is lost, unless another process does.
    async fn adopt_one(&self, row: AuthFlowRow) -> Result<(), StoreError> {
        let parts = &self.inner.parts;
        let Some(row) = parts.store.adopt_auth_flow(row).await? else {
            return Ok(());
        };
        let event = match row.flow.browser() {
            Some(id) if !parts.browsers.is_active(&row.project_id, id).await? => {
                FlowEvent::ControllerLost
            }
            _ => FlowEvent::Resumed,
        };
        tracing::info!(flow = %row.id(), ?event, "continues the login of another process");
        let now = Utc::now();
        let transition = row.flow.apply(event, now);
        let id = row.id().clone();
        // A person may have answered meanwhile: the driver continues from there.
        parts.store.advance_auth_flow(row, &transition, now).await?;
        self.spawn_driver(id);
        Ok(())
    }
}
