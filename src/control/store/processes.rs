//! The table of control processes, of which one or several serve from the database.
//!
//! A process that changes a browser or a host in several steps has its id in the row. If it dies in
//! between, another one finishes that: the one that leads. Each running process holds a lock with
//! its id ([`ProcessLock`](super::ProcessLock)), which the server releases when the process dies.

use std::{collections::HashSet, fmt};

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveValue::{NotSet, Set},
    ColumnTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder,
};

use super::{Store, StoreError, entity::control_process, postgres, to_millis};

/// The number of a control process, which no other process of the database has or had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControlProcessId(pub(super) i32);

#[cfg(test)]
impl ControlProcessId {
    /// Returns the id of a process that need not exist.
    pub fn sample(id: i32) -> ControlProcessId {
        ControlProcessId(id)
    }
}

impl fmt::Display for ControlProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A control process that starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProcess {
    /// Whether it runs hosts itself, so that no other process may serve beside it.
    pub is_exclusive: bool,
    /// The random id of its state directory, which stays when it is moved. `None` if that has no
    /// files that belong to the rows.
    pub state_dir: Option<String>,
    /// A digest of what all processes must have in common, such as the secret of session tokens.
    pub common: String,
    /// The host name and the path of the state directory, for messages.
    pub location: String,
}

/// A control process that has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: ControlProcessId,
    pub process: NewProcess,
}

impl From<control_process::Model> for ProcessRow {
    fn from(row: control_process::Model) -> Self {
        ProcessRow {
            id: ControlProcessId(row.id),
            process: NewProcess {
                is_exclusive: row.exclusive,
                state_dir: row.state_dir,
                common: row.common,
                location: row.location,
            },
        }
    }
}

impl Store {
    /// Records the start of a process, and returns its number.
    pub(super) async fn add_process(
        &self,
        process: NewProcess,
        now: DateTime<Utc>,
    ) -> Result<ControlProcessId, StoreError> {
        let row = control_process::ActiveModel {
            id: NotSet,
            exclusive: Set(process.is_exclusive),
            state_dir: Set(process.state_dir),
            common: Set(process.common),
            location: Set(process.location),
            started_at: Set(to_millis(now)),
        };
        let inserted = control_process::Entity::insert(row)
            .exec(&self.writer)
            .await?;
        Ok(ControlProcessId(inserted.last_insert_id))
    }

    /// Returns the processes that have started after `id`, the newest first.
    pub(super) async fn processes_after(
        &self,
        id: ControlProcessId,
    ) -> Result<Vec<ProcessRow>, StoreError> {
        let rows = control_process::Entity::find()
            .filter(control_process::Column::Id.gt(id.0))
            .order_by_desc(control_process::Column::Id)
            .all(&self.db)
            .await?;
        Ok(rows.into_iter().map(ProcessRow::from).collect())
    }

    /// Returns the processes that run.
    pub async fn live_processes(&self) -> Result<HashSet<ControlProcessId>, StoreError> {
        match self.db.get_database_backend() {
            DbBackend::Postgres => postgres::live_processes(&self.db).await,
            // The state directory has one process.
            _ => Ok(self.process.into_iter().collect()),
        }
    }

    /// Returns the number of this process, once it has one.
    #[must_use]
    pub fn process(&self) -> Option<ControlProcessId> {
        self.process
    }

    /// Returns the number of this process for a column.
    pub(super) fn process_column(&self) -> Option<i32> {
        self.process.map(|id| id.0)
    }

    /// Deletes the records of processes that started before `before` and are none of `live`. The
    /// newest stays. Returns how many.
    pub async fn purge_processes(
        &self,
        before: DateTime<Utc>,
        live: &HashSet<ControlProcessId>,
    ) -> Result<u64, StoreError> {
        let newest = control_process::Entity::find()
            .order_by_desc(control_process::Column::Id)
            .one(&self.db)
            .await?;
        let kept = live.iter().map(|id| id.0);
        let kept = kept.chain(newest.map(|row| row.id));
        let purged = control_process::Entity::delete_many()
            .filter(control_process::Column::StartedAt.lt(to_millis(before)))
            .filter(control_process::Column::Id.is_not_in(kept))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

#[cfg(test)]
impl NewProcess {
    /// Returns a process with registered hosts and a bucket.
    pub(crate) fn sample(location: &str) -> NewProcess {
        NewProcess {
            is_exclusive: false,
            state_dir: None,
            common: "common".to_owned(),
            location: format!("host:/{location}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::control::store::test_database::TestDatabase;

    #[tokio::test]
    async fn records_of_ended_processes_are_purged() {
        let database = TestDatabase::create();
        let store = database.open().await;
        let mut ids = Vec::new();
        for location in ["a", "b", "c"] {
            let begun = store.begin_process(NewProcess::sample(location)).await;
            ids.push(begun.unwrap().process().unwrap());
        }
        let live = HashSet::from([ids[0]]);
        let purge = async |before| store.purge_processes(before, &live).await.unwrap();
        assert_eq!(purge(Utc::now() - TimeDelta::hours(1)).await, 0);
        assert_eq!(purge(Utc::now() + TimeDelta::hours(1)).await, 1);
        let left = store.processes_after(ControlProcessId(0)).await.unwrap();
        let left: Vec<ControlProcessId> = left.into_iter().map(|row| row.id).collect();
        assert_eq!(left, [ids[2], ids[0]]);
        store.close().await.unwrap();
    }
}
