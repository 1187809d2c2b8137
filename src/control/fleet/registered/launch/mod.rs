//! Launches hosts for browsers that found none, with commands of the operator, and destroys them:
//! for engines without an autoscaler.
//!
//! - [`state`]: a launch's life as a pure state machine.
//! - [`reconciler`]: the task that runs the commands which the rows require.
//! - [`command`]: runs one command.
//! - [`engine_id`]: the id of a machine.
//! - [`settings`]: the settings.
//!
//! ```text
//! browser got no host ──▶ row ──▶ launch command, with a join token ──▶ machine ──▶ host joins
//!                                                                                      │
//! row is deleted ◀── destroy command succeeds ◀── the host is idle, retired, lost or gone
//! ```
//!
//! The row of a launch is written before its command starts, and deleted after its machine is
//! destroyed, so that no machine is unaccounted for, wherever control is killed. The destroy
//! command may run more than once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    RegisteredHosts,
    demand::{ModeDemand, RETRY_INTERVAL},
};
use crate::{
    api::ids::LaunchId,
    control::{
        processes::Leadership,
        secret_token,
        store::{Fleet, HostLaunchRow, Store, StoreError},
    },
    shutdown::Shutdown,
};

mod command;
mod engine_id;
mod reconciler;
mod settings;
pub(super) mod state;
#[cfg(test)]
mod tests;

use command::LaunchCommands;
pub use engine_id::EngineId;
use reconciler::Work;
pub use settings::{LaunchConfig, LaunchSettings};
use state::{Event, ImpossibleLaunchEvent, LaunchLife, State};

/// The time in which a host that starts or is recycled counts as free soon.
const FREE_TIMEOUT: TimeDelta = TimeDelta::minutes(2);
/// Between two warnings of launched hosts that nothing destroys.
const WARNING_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Why an event was not applied to a launch.
#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("the launch has no row")]
    Unknown,
    #[error(transparent)]
    Impossible(#[from] ImpossibleLaunchEvent),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The service that launches hosts. Clones share its state.
#[derive(Clone)]
pub struct HostLaunches {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    registered: RegisteredHosts,
    commands: LaunchCommands,
    work: Mutex<Work>,
    /// Notified when a launch has changed.
    changed: Notify,
    shutdown: Shutdown,
}

impl HostLaunches {
    /// Returns the service. Agents reach control at `control_url`.
    pub fn new(
        store: Store,
        registered: RegisteredHosts,
        config: LaunchConfig,
        control_url: String,
        shutdown: Shutdown,
    ) -> HostLaunches {
        let commands = LaunchCommands {
            config,
            control_url,
            shutdown: shutdown.clone(),
        };
        HostLaunches {
            inner: Arc::new(Inner {
                store,
                registered,
                commands,
                work: Mutex::default(),
                changed: Notify::new(),
                shutdown,
            }),
        }
    }

    /// Requests launches for the browsers of this process that got no host, until shutdown. Each
    /// process runs this, because each knows its own clients only.
    pub async fn request_hosts(self) {
        let Inner {
            registered,
            shutdown,
            ..
        } = &*self.inner;
        loop {
            tokio::select! {
                () = registered.demand().recorded().notified() => {}
                () = shutdown.requested() => return,
            }
            for demand in registered.demand().by_mode() {
                if let Err(error) = self.request(&demand).await {
                    tracing::error!(%error, "cannot request a host");
                }
            }
        }
    }

    /// Inserts a row for each host that is missing.
    async fn request(&self, demand: &ModeDemand) -> Result<(), StoreError> {
        let Inner {
            store, commands, ..
        } = &*self.inner;
        let options = &demand.options;
        let (mode, viewport) = (options.mode, options.viewport);
        let since = Utc::now() - FREE_TIMEOUT;
        let free = store.count_free_hosts(Fleet::Registered, mode, viewport, since);
        let free = usize::try_from(free.await?).unwrap_or(usize::MAX);
        let rows = store.list_host_launches().await?;
        let missing = missing(demand, free, &rows, Utc::now());
        let slots = free_slots(&rows, commands.config.max_hosts);
        if missing > slots.len() {
            let limit = commands.config.max_hosts;
            tracing::debug!(missing, limit, "the limit of launched hosts is reached");
        }
        for slot in slots.into_iter().take(missing) {
            if store.request_host_launch(slot, options, Utc::now()).await? {
                self.inner.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Applies an event to the row of a launch. Returns the launch afterwards.
    async fn apply(&self, id: &LaunchId, event: Event) -> Result<LaunchLife, ApplyError> {
        let store = &self.inner.store;
        loop {
            let row = store.find_host_launch(id).await?;
            let row = row.ok_or(ApplyError::Unknown)?;
            let after = row.life.apply(event.clone())?;
            // Otherwise another event was faster.
            if store.change_host_launch(&row, &after, Utc::now()).await? {
                tracing::info!(
                    launch = %id, from = ?row.life.state, to = ?after.state, "launch changed"
                );
                self.inner.changed.notify_one();
                return Ok(after);
            }
        }
    }
}

/// Warns of launched hosts that nothing destroys, because the process that leads is this one and
/// has no commands, until shutdown.
pub async fn warn_of_unmanaged_launches(store: Store, leadership: Leadership, shutdown: Shutdown) {
    loop {
        match store.list_host_launches().await {
            Ok(rows) if rows.is_empty() || !leadership.leads() => {}
            Ok(rows) => tracing::warn!(
                launches = rows.len(),
                "launched hosts are not destroyed without --launch-command and --destroy-command"
            ),
            Err(error) => tracing::error!(%error, "cannot look for launched hosts"),
        }
        if !shutdown.sleep(WARNING_INTERVAL).await {
            return;
        }
    }
}

/// Returns whether a host may join with a presented token, which is that of the launch.
pub(super) fn accepts(row: &HostLaunchRow, presented: &str, now: DateTime<Utc>) -> bool {
    let is_open = matches!(row.life.state, State::Launching | State::Launched);
    let is_valid = row.token.as_ref().is_some_and(|token| {
        token.expires_at > now && secret_token::matches(presented, &token.digest)
    });
    is_open && is_valid && row.life.host.is_none()
}

/// Returns how many hosts are missing. A launch counts as a host until its own one joins, and for
/// as long as its browser may still be counted.
fn missing(demand: &ModeDemand, free: usize, rows: &[HostLaunchRow], now: DateTime<Utc>) -> usize {
    let is_answer = |row: &&HostLaunchRow| {
        let is_kept = !matches!(row.life.state, State::Destroying | State::Gone);
        let is_new = now - row.created_at < to_delta(RETRY_INTERVAL);
        is_kept && row.options.mode == demand.options.mode && (row.life.host.is_none() || is_new)
    };
    let answers = rows.iter().filter(is_answer).count();
    demand.count.saturating_sub(free.saturating_add(answers))
}

/// Returns the slots that have no launch, as many as machines are permitted.
fn free_slots(rows: &[HostLaunchRow], limit: u32) -> Vec<u32> {
    let taken: BTreeSet<u32> = rows.iter().filter_map(|row| row.slot).collect();
    let mut free: Vec<u32> = (0..limit).filter(|slot| !taken.contains(slot)).collect();
    // A row that was restored has no slot, and one of a higher limit has a slot beyond this one.
    free.truncate((limit as usize).saturating_sub(rows.len()));
    free
}

fn to_delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
