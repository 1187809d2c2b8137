//! Keeps connections logged in: checks them regularly, and logs in again those that are not.
//!
//! - [`schedule`]: what is due when, as pure functions.
//! - [`check`]: a check in a browser. [`verdict`]: what its page shows.
//!
//! The process that leads runs it. What is due follows from the rows, so that another process
//! continues at any time.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

use self::{check::Finding, schedule::CheckResult};
use super::{
    AuthConnectionError, AuthConnections,
    logins::{LoginError, LoginParts, Logins},
};
use crate::{
    api::{
        auth_connections::AuthEventType,
        auth_flow::FlowErrorCode,
        ids::{AuthTimelineId, FlowId},
    },
    control::{
        processes::Leadership,
        store::{AuthConnectionRow, AuthTimelineRow, HealthChange, StoreError},
    },
};

mod check;
mod schedule;
mod verdict;

pub use schedule::{ConnectionHealth, ScheduleContext};

/// The interval of the passes.
const PASS_INTERVAL: Duration = Duration::from_secs(1);
/// The most connections of a pass.
const PASS_LIMIT: u64 = 100;
/// The time after which a check is repeated that was not completed, because its process has died.
const CHECK_TIMEOUT: TimeDelta = TimeDelta::minutes(10);
/// The delay of what is due while a login is in progress.
const LOGIN_DELAY: TimeDelta = TimeDelta::minutes(1);
/// The interval at which the end of a login is looked for without a notification.
const FLOW_INTERVAL: Duration = Duration::from_secs(5);

/// Why something that was due was not done. It is still due.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connection(#[from] AuthConnectionError),
    #[error(transparent)]
    Login(#[from] LoginError),
}

/// The service of health checks. Clones share its state.
#[derive(Clone)]
pub struct HealthChecks {
    logins: Logins,
    connections: AuthConnections,
    /// Has a permit for each browser that may run.
    permits: Arc<Semaphore>,
    /// Notified when a permit is available again.
    released: Arc<Notify>,
}

impl HealthChecks {
    /// Returns the service, which runs up to `max_browsers` at once.
    #[must_use]
    pub fn new(logins: Logins, connections: AuthConnections, max_browsers: usize) -> HealthChecks {
        HealthChecks {
            logins,
            connections,
            permits: Arc::new(Semaphore::new(max_browsers)),
            released: Arc::default(),
        }
    }

    /// Does what is due, whenever this process leads, until shutdown.
    pub async fn run(self, leadership: Leadership) {
        let shutdown = self.parts().shutdown.clone();
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = self.released.notified() => {}
                () = sleep(PASS_INTERVAL) => {}
            }
            if leadership.leads()
                && let Err(error) = self.pass(Utc::now()).await
            {
                tracing::error!(%error, "cannot find the health checks that are due");
            }
        }
    }

    fn parts(&self) -> &LoginParts {
        self.logins.parts()
    }

    async fn pass(&self, now: DateTime<Utc>) -> Result<(), StoreError> {
        let due = self.parts().store.due_auth_connections(now, PASS_LIMIT);
        for row in due.await? {
            let id = row.id.clone();
            if let Err(error) = self.perform(row, now).await {
                tracing::error!(connection = %id, %error, "cannot check a connection yet");
            }
        }
        Ok(())
    }

    /// Does the first of what is due for a connection, or begins it. The next pass does the rest.
    async fn perform(&self, row: AuthConnectionRow, now: DateTime<Utc>) -> Result<(), HealthError> {
        let is_due = |at: Option<DateTime<Utc>>| at.is_some_and(|at| at <= now);
        if is_due(row.health.warn_at) {
            let health = row.health.after_warning();
            self.change(&row, health).await?;
            return Ok(());
        }
        let reauth = row.settings.auto_reauth && is_due(row.health.reauth_at);
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            return Ok(());
        };
        if self.logins.is_in_progress(&row.id).await? {
            let mut health = row.health.clone();
            let later = Some(now + LOGIN_DELAY);
            match reauth {
                true => health.reauth_at = later,
                false => health.check_at = later,
            }
            self.change(&row, health).await?;
            return Ok(());
        }
        match reauth {
            true => self.begin_reauth(row, permit, now).await,
            false => self.begin_check(&row, permit, now).await,
        }
    }

    /// Begins a login without a person, if there is a credential.
    async fn begin_reauth(
        &self,
        row: AuthConnectionRow,
        permit: OwnedSemaphorePermit,
        now: DateTime<Utc>,
    ) -> Result<(), HealthError> {
        if !self.connections.has_credential(&row).await? {
            let context = ScheduleContext::new(row.settings.health_check_interval, now);
            let health = row.health.without_credential(context);
            self.change(&row, health).await?;
            return Ok(());
        }
        let flow = match self.logins.begin_unattended(&row).await {
            Ok(flow) => flow,
            Err(LoginError::InProgress | LoginError::ConnectionNotFound) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        tracing::info!(connection = %row.id, %flow, "logs a connection in again");
        let this = self.clone();
        self.parts().shutdown.spawn(async move {
            this.wait_until_ended(&flow).await;
            this.release(permit);
        });
        Ok(())
    }

    async fn wait_until_ended(&self, flow: &FlowId) {
        let mut changes = self.logins.subscribe(flow);
        let shutdown = &self.parts().shutdown;
        while let Ok(Some(row)) = self.logins.find(flow).await
            && row.ended_at.is_none()
        {
            tokio::select! {
                _ = changes.changed() => {}
                is_running = shutdown.sleep(FLOW_INTERVAL) => if !is_running {
                    return;
                },
            }
        }
    }

    /// Begins a check, unless another process has.
    async fn begin_check(
        &self,
        row: &AuthConnectionRow,
        permit: OwnedSemaphorePermit,
        now: DateTime<Utc>,
    ) -> Result<(), HealthError> {
        let mut health = row.health.clone();
        health.check_at = Some(now + CHECK_TIMEOUT);
        let Some(row) = self.change(row, health).await? else {
            return Ok(());
        };
        let this = self.clone();
        self.parts().shutdown.spawn(async move {
            let finding = this.check(&row).await;
            // Otherwise the browser has ended with this process, and another one repeats the check.
            if !this.parts().shutdown.is_requested() {
                this.record(row, finding, now).await;
            }
            this.release(permit);
        });
        Ok(())
    }

    fn release(&self, permit: OwnedSemaphorePermit) {
        drop(permit);
        self.released.notify_one();
    }

    /// Records a check, unless the connection was logged in or changed meanwhile.
    async fn record(&self, row: AuthConnectionRow, finding: Finding, started: DateTime<Utc>) {
        let now = Utc::now();
        let context = ScheduleContext::new(row.settings.health_check_interval, now);
        let (status, health) = row.health.after_check(row.status, &finding.result, context);
        let (outcome, error_code) = match finding.result {
            CheckResult::LoggedIn { .. } => ("logged_in", None),
            CheckResult::LoggedOut => ("logged_out", Some(FlowErrorCode::LoggedOut)),
            CheckResult::Unknown(error) => ("unknown", error),
        };
        metrics::counter!("berth_auth_health_checks_total", "outcome" => outcome).increment(1);
        let entry = AuthTimelineRow {
            id: AuthTimelineId::generate(),
            connection_id: row.id.clone(),
            event_type: AuthEventType::HealthCheck,
            flow_id: None,
            status: status.into(),
            previous_status: Some(row.status.into()),
            step: None,
            error_code,
            website_error: None,
            browser_id: finding.browser,
            replay_id: None,
            created_at: started,
            completed_at: Some(now),
        };
        let id = row.id.clone();
        let change = HealthChange {
            before: row,
            status,
            health,
            check: Some(entry),
        };
        if let Err(error) = self.parts().store.change_auth_health(change).await {
            // Another process repeats the check.
            tracing::error!(connection = %id, %error, "cannot record a health check");
        }
    }

    /// Changes the schedule of a connection. Returns `None` if that has changed since the row was
    /// read.
    async fn change(
        &self,
        row: &AuthConnectionRow,
        health: ConnectionHealth,
    ) -> Result<Option<AuthConnectionRow>, StoreError> {
        let change = HealthChange {
            before: row.clone(),
            status: row.status,
            health,
            check: None,
        };
        self.parts().store.change_auth_health(change).await
    }
}
