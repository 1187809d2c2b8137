//! Allows one control process per PostgreSQL database.
//!
//! At its start, a control process closes the records of the browsers that it does not run, and of
//! the replays that its state directory does not have. So a second one, or one with another state
//! directory, would destroy the records of the first. The process holds an advisory lock on a
//! connection of its own, and records its run in a row. If the connection breaks, as it does when
//! the server is restarted, it acquires the lock again, unless the row shows that another process
//! did so before.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, DatabaseConnection, DbErr, EntityTrait, IntoActiveModel,
    sea_query::OnConflict,
};
use sqlx::{Connection, postgres::PgConnection};
use ulid::Ulid;

use super::{LOCK_CLASS, PROCESS_LOCK, PostgresConfig, connect_once};
use crate::{
    control::store::{entity::control_process, open_error::OpenFailure, to_millis},
    shutdown::Shutdown,
};

/// The interval at which the connection is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time in which the server has to answer a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of an attempt to acquire a lost lock.
const REGAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// The delay between two attempts to acquire a lost lock.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The id of the only row.
const ID: i32 = 1;

/// The state directory of a control process.
#[derive(Debug, Clone)]
pub struct ProcessLocation {
    /// A random id of the directory, which stays when it is moved.
    pub state_dir: String,
    /// The host name and the path, for messages.
    pub description: String,
}

/// The right to serve from a database, as long as it is held.
pub struct ProcessLock {
    config: PostgresConfig,
    db: DatabaseConnection,
    /// Identifies this process among all that held the lock.
    run: String,
    /// Holds the lock. `None` while it is lost.
    connection: Option<PgConnection>,
}

/// Another process has acquired the lock while the connection was broken.
#[derive(Debug, thiserror::Error)]
#[error("another control process has taken over the {database}")]
pub struct Displaced {
    database: String,
}

impl ProcessLock {
    /// Acquires the lock at the start of control.
    pub(in crate::control::store) async fn acquire(
        config: PostgresConfig,
        db: DatabaseConnection,
        location: ProcessLocation,
        now: DateTime<Utc>,
    ) -> Result<ProcessLock, OpenFailure> {
        let mut connection = connect_once(&config).await?;
        let is_locked = try_lock(&mut connection).await?;
        let last = find_row(&db).await?;
        if !is_locked {
            let by = last.map_or_else(String::new, |last| format!(" ({})", last.location));
            return Err(OpenFailure::InUse(by));
        }
        if let Some(last) = last.filter(|last| last.state_dir != location.state_dir) {
            return Err(OpenFailure::OtherStateDir(last.location));
        }
        let run = Ulid::generate().to_string();
        let row = control_process::Model {
            id: ID,
            run: run.clone(),
            state_dir: location.state_dir,
            location: location.description,
            started_at: to_millis(now),
        };
        set_row(&db, row).await?;
        Ok(ProcessLock {
            config,
            db,
            run,
            connection: Some(connection),
        })
    }

    /// Holds the lock until shutdown, which it requests if another process has acquired the lock.
    /// Returns the lock, which is released when it is dropped.
    pub async fn hold(mut self, shutdown: Shutdown) -> Result<ProcessLock, Displaced> {
        while shutdown.sleep(CHECK_INTERVAL).await {
            let Err(error) = self.check().await else {
                continue;
            };
            tracing::warn!(%error, "lost the connection that holds the lock of the database");
            // Closes it, so that the server releases the lock if it has not done so yet.
            self.connection = None;
            if let Err(displaced) = self.regain(&shutdown).await {
                tracing::error!(%displaced, "shutting down");
                shutdown.request();
                return Err(displaced);
            }
        }
        Ok(self)
    }

    /// Checks that the connection works. A session loses the lock only at its end.
    async fn check(&mut self) -> Result<(), String> {
        let Some(connection) = &mut self.connection else {
            return Err("it is closed".to_owned());
        };
        match tokio::time::timeout(CHECK_TIMEOUT, connection.ping()).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no response within {} s", CHECK_TIMEOUT.as_secs())),
        }
    }

    /// Acquires the lock again, unless shutdown is requested before.
    async fn regain(&mut self, shutdown: &Shutdown) -> Result<(), Displaced> {
        loop {
            let attempt = tokio::select! {
                attempt = tokio::time::timeout(REGAIN_TIMEOUT, self.try_regain()) => attempt,
                () = shutdown.requested() => return Ok(()),
            };
            match attempt {
                Ok(Ok(Attempt::Acquired(connection))) => {
                    self.connection = Some(connection);
                    tracing::info!("acquired the lock of the database again");
                    return Ok(());
                }
                Ok(Ok(Attempt::Displaced)) => {
                    let database = self.config.to_string();
                    return Err(Displaced { database });
                }
                Ok(Ok(Attempt::InUse)) => tracing::debug!("the lock of the database is in use"),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "cannot acquire the lock of the database");
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
        let is_locked = try_lock(&mut connection).await?;
        let last = find_row(&self.db).await?;
        let is_own = last.is_some_and(|last| last.run == self.run);
        Ok(match (is_own, is_locked) {
            (true, true) => Attempt::Acquired(connection),
            (true, false) => Attempt::InUse,
            (false, _) => Attempt::Displaced,
        })
    }
}

/// The result of an attempt to acquire the lock again.
enum Attempt {
    Acquired(PgConnection),
    /// No other process has started, so the server has not noticed yet that the old connection is
    /// broken.
    InUse,
    /// Another process has acquired the lock, and may have ended since.
    Displaced,
}

/// Acquires the lock unless another session holds it.
async fn try_lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1, $2)")
        .bind(LOCK_CLASS)
        .bind(PROCESS_LOCK)
        .fetch_one(connection)
        .await
}

async fn find_row(db: &DatabaseConnection) -> Result<Option<control_process::Model>, DbErr> {
    control_process::Entity::find_by_id(ID).one(db).await
}

async fn set_row(db: &DatabaseConnection, row: control_process::Model) -> Result<(), DbErr> {
    use control_process::Column;
    let changed = [
        Column::Run,
        Column::StateDir,
        Column::Location,
        Column::StartedAt,
    ];
    let replace = OnConflict::column(Column::Id)
        .update_columns(changed)
        .to_owned();
    control_process::Entity::insert(row.into_active_model().reset_all())
        .on_conflict(replace)
        .exec_without_returning(db)
        .await?;
    Ok(())
}
