//! Which control processes serve from a PostgreSQL database, and which of them leads.
//!
//! A process holds advisory locks on a connection of its own, which the server releases when the
//! process dies, or does not respond to the keep-alive probes of its machine:
//!
//! - the lock of the fleet: shared by processes with registered hosts, exclusive for one that runs
//!   its hosts itself, whose browsers no other process reaches;
//! - the lock of its number, which shows that it runs;
//! - the lock of the leader, which one of them gets. It finishes the work of dead ones.
//!
//! If the connection breaks, as it does when the server is restarted, the process acquires the
//! locks again, unless one that does not permit it has started meanwhile.

use std::{collections::HashSet, time::Duration};

use chrono::{DateTime, Utc};
use sea_orm::{ConnectionTrait, DatabaseConnection, DbBackend, Statement};
use sqlx::{Connection, postgres::PgConnection};
use tokio::sync::watch;

use super::{LOCK_CLASS, PostgresConfig, connect_once};
use crate::{
    control::store::{
        ControlProcessId, NewProcess, ProcessRow, Store, StoreError, open_error::OpenFailure,
    },
    shutdown::Shutdown,
};

/// The interval at which the connection is checked, and leadership is tried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time in which the server has to answer a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of an attempt to acquire lost locks.
const REGAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The delay between two attempts to acquire lost locks.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The second key of the lock of the fleet.
const FLEET_LOCK: i32 = 2;
/// The second key of the lock of the leader.
const LEADER_LOCK: i32 = 3;
/// The second key of the lock that is held while a process compares itself with the others.
const START_LOCK: i32 = 4;
/// The first key of the locks of the processes: "berp" in ASCII. The second is the number.
const PROCESS_CLASS: i32 = 0x6265_7270;

/// The right to serve from a database, as long as it is held.
pub struct ProcessLock {
    config: PostgresConfig,
    store: Store,
    id: ControlProcessId,
    is_exclusive: bool,
    common: String,
    /// Holds the locks. `None` while they are lost.
    connection: Option<PgConnection>,
    leads: watch::Sender<bool>,
}

/// A process that does not permit this one has started while the connection was broken.
#[derive(Debug, thiserror::Error)]
#[error("another control process has taken over the {database}")]
pub struct Displaced {
    database: String,
}

impl ProcessLock {
    /// Acquires the locks at the start of control, and records the process.
    pub(in crate::control::store) async fn acquire(
        config: PostgresConfig,
        store: &Store,
        process: NewProcess,
        now: DateTime<Utc>,
    ) -> Result<ProcessLock, OpenFailure> {
        let mut connection = connect_once(&config).await?;
        sqlx::query("SELECT pg_advisory_lock($1, $2)")
            .bind(LOCK_CLASS)
            .bind(START_LOCK)
            .execute(&mut connection)
            .await?;
        let is_exclusive = process.is_exclusive;
        let is_locked = try_lock_fleet(&mut connection, is_exclusive).await?;
        let processes = store.processes_after(ControlProcessId(0)).await?;
        let live = live_processes(&store.db).await?;
        let mut others = processes.iter().filter(|other| live.contains(&other.id));
        if !is_locked {
            let by = others.next();
            let by = by.map_or_else(String::new, |by| format!(" ({})", by.process.location));
            return Err(OpenFailure::InUse(by));
        }
        if let Some(other) = others.find(|other| other.process.common != process.common) {
            return Err(OpenFailure::OtherSettings(other.process.location.clone()));
        }
        check_state_dir(&processes, &process)?;
        let common = process.common.clone();
        let id = store.add_process(process, now).await?;
        try_lock(&mut connection, PROCESS_CLASS, id.0).await?;
        let leads = try_lock(&mut connection, LOCK_CLASS, LEADER_LOCK).await?;
        sqlx::query("SELECT pg_advisory_unlock($1, $2)")
            .bind(LOCK_CLASS)
            .bind(START_LOCK)
            .execute(&mut connection)
            .await?;
        Ok(ProcessLock {
            config,
            store: store.clone(),
            id,
            is_exclusive,
            common,
            connection: Some(connection),
            leads: watch::Sender::new(leads),
        })
    }

    /// Returns the number of this process.
    pub(in crate::control::store) fn id(&self) -> ControlProcessId {
        self.id
    }

    /// Returns whether this process leads, as it changes.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Holds the locks until shutdown, which it requests if another process does not permit them.
    /// Returns the lock, which is released when it is dropped.
    pub async fn hold(mut self, shutdown: Shutdown) -> Result<ProcessLock, Displaced> {
        while shutdown.sleep(CHECK_INTERVAL).await {
            let Err(error) = self.check().await else {
                continue;
            };
            tracing::warn!(%error, "lost the connection that holds the locks of the database");
            // Closes it, so that the server releases the locks if it has not done so yet.
            self.connection = None;
            self.leads.send_replace(false);
            if let Err(displaced) = self.regain(&shutdown).await {
                tracing::error!(%displaced, "shutting down");
                shutdown.request();
                return Err(displaced);
            }
        }
        Ok(self)
    }

    /// Checks that the connection works, and tries to lead. A connection loses its locks only at
    /// its end.
    async fn check(&mut self) -> Result<(), String> {
        let Some(connection) = &mut self.connection else {
            return Err("it is closed".to_owned());
        };
        let leads = *self.leads.borrow();
        let checking = async {
            match leads {
                true => connection.ping().await.map(|()| true),
                false => try_lock(connection, LOCK_CLASS, LEADER_LOCK).await,
            }
        };
        match tokio::time::timeout(CHECK_TIMEOUT, checking).await {
            Ok(Ok(now_leads)) => {
                if now_leads && !leads {
                    tracing::info!(process = %self.id, "this control process leads now");
                    self.leads.send_replace(true);
                }
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {} s", CHECK_TIMEOUT.as_secs())),
        }
    }

    /// Acquires the locks again, unless shutdown is requested before.
    async fn regain(&mut self, shutdown: &Shutdown) -> Result<(), Displaced> {
        loop {
            let attempt = tokio::select! {
                attempt = tokio::time::timeout(REGAIN_TIMEOUT, self.try_regain()) => attempt,
                () = shutdown.requested() => return Ok(()),
            };
            match attempt {
                Ok(Ok(Attempt::Acquired(connection))) => {
                    self.connection = Some(connection);
                    tracing::info!("acquired the locks of the database again");
                    return Ok(());
                }
                Ok(Ok(Attempt::Displaced)) => {
                    let database = self.config.to_string();
                    return Err(Displaced { database });
                }
                Ok(Ok(Attempt::InUse)) => tracing::debug!("the locks of the database are in use"),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "cannot acquire the locks of the database");
                }
                Err(_) => tracing::debug!("the database does not respond"),
            }
            if !shutdown.sleep(RETRY_DELAY).await {
                return Ok(());
            }
        }
    }

    async fn try_regain(&self) -> Result<Attempt, OpenFailure> {
        let mut connection = connect_once(&self.config).await?;
        let is_locked = try_lock_fleet(&mut connection, self.is_exclusive).await?
            && try_lock(&mut connection, PROCESS_CLASS, self.id.0).await?;
        let newer = self.store.processes_after(self.id).await?;
        let is_displaced = newer.iter().any(|newer| {
            let other = &newer.process;
            self.is_exclusive || other.is_exclusive || other.common != self.common
        });
        Ok(match (is_displaced, is_locked) {
            (true, _) => Attempt::Displaced,
            (false, true) => Attempt::Acquired(connection),
            (false, false) => Attempt::InUse,
        })
    }
}

/// The result of an attempt to acquire the locks again.
enum Attempt {
    Acquired(PgConnection),
    /// The server has not noticed yet that the old connection is broken.
    InUse,
    /// A process that does not permit this one has started, and may have ended since.
    Displaced,
}

/// Checks that the state directory has the files that belong to the rows.
fn check_state_dir(processes: &[ProcessRow], process: &NewProcess) -> Result<(), OpenFailure> {
    let with_files = processes
        .iter()
        .find(|other| other.process.state_dir.is_some());
    match with_files {
        Some(last)
            if process.state_dir.is_some() && last.process.state_dir != process.state_dir =>
        {
            Err(OpenFailure::OtherStateDir(last.process.location.clone()))
        }
        _ => Ok(()),
    }
}

/// Acquires the lock of the fleet unless another process does not permit that.
async fn try_lock_fleet(
    connection: &mut PgConnection,
    is_exclusive: bool,
) -> Result<bool, sqlx::Error> {
    if is_exclusive {
        return try_lock(connection, LOCK_CLASS, FLEET_LOCK).await;
    }
    sqlx::query_scalar("SELECT pg_try_advisory_lock_shared($1, $2)")
        .bind(LOCK_CLASS)
        .bind(FLEET_LOCK)
        .fetch_one(connection)
        .await
}

/// Acquires a lock unless another connection holds it.
pub(super) async fn try_lock(
    connection: &mut PgConnection,
    class: i32,
    key: i32,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1, $2)")
        .bind(class)
        .bind(key)
        .fetch_one(connection)
        .await
}

/// Returns the processes whose locks are held.
pub(in crate::control::store) async fn live_processes(
    db: &DatabaseConnection,
) -> Result<HashSet<ControlProcessId>, StoreError> {
    let query = "SELECT objid::int4 FROM pg_locks WHERE locktype = 'advisory' AND granted \
        AND classid = $1::int4::oid \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let statement =
        Statement::from_sql_and_values(DbBackend::Postgres, query, [PROCESS_CLASS.into()]);
    let rows = db.query_all_raw(statement).await?;
    let ids = rows
        .iter()
        .map(|row| row.try_get_by_index(0).map(ControlProcessId));
    Ok(ids.collect::<Result<_, _>>()?)
}
