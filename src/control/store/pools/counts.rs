//! Counts of pools, and of what they have.

use std::collections::HashMap;

use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, DbBackend, EntityTrait, IsolationLevel,
    PaginatorTrait, QueryFilter, QuerySelect, TransactionOptions, TransactionTrait,
};

use super::{available::available, leased, of_project};
use crate::{
    api::ids::{PoolId, ProjectId},
    control::store::{
        Store, StoreError, corrupt,
        entity::{browser, pool, pool_browser, pool_waiter},
    },
};

/// The browsers of a pool and its waiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Browsers that can be leased at once.
    pub available: u64,
    /// Browsers that clients have.
    pub acquired: u64,
    /// Clients that wait for a browser.
    pub waiting: u64,
}

impl Store {
    /// Counts the browsers and the waiters of pools.
    pub async fn pool_counts(
        &self,
        pools: &[PoolId],
    ) -> Result<HashMap<PoolId, PoolCounts>, StoreError> {
        let ids = || pools.iter().map(PoolId::as_str);
        // All counts are those of one moment.
        let snapshot = self.begin_snapshot().await?;
        let available: Vec<(String, i64)> = available()
            .select_only()
            .column(pool_browser::Column::PoolId)
            .column_as(pool_browser::Column::Id.count(), "count")
            .filter(pool_browser::Column::PoolId.is_in(ids()))
            .group_by(pool_browser::Column::PoolId)
            .into_tuple()
            .all(&snapshot)
            .await?;
        let acquired = acquired_counts(&snapshot, pools).await?;
        let waiting: Vec<(String, i64)> = pool_waiter::Entity::find()
            .select_only()
            .column(pool_waiter::Column::PoolId)
            .column_as(pool_waiter::Column::Ticket.count(), "count")
            .filter(pool_waiter::Column::PoolId.is_in(ids()))
            .group_by(pool_waiter::Column::PoolId)
            .into_tuple()
            .all(&snapshot)
            .await?;
        snapshot.commit().await?;
        let mut counts: HashMap<PoolId, PoolCounts> = HashMap::new();
        let mut add = |rows: Vec<(String, i64)>, set: fn(&mut PoolCounts, u64)| {
            for (id, count) in rows {
                let id = id.parse().map_err(|_| corrupt("pool id", id))?;
                set(
                    counts.entry(id).or_default(),
                    count.try_into().unwrap_or_default(),
                );
            }
            Ok::<_, StoreError>(())
        };
        add(available, |counts, count| counts.available = count)?;
        add(acquired, |counts, count| counts.acquired = count)?;
        add(waiting, |counts, count| counts.waiting = count)?;
        Ok(counts)
    }

    /// Begins a transaction whose reads see one moment, as all transactions of SQLite do.
    async fn begin_snapshot(&self) -> Result<DatabaseTransaction, StoreError> {
        let isolation_level = match self.db.get_database_backend() {
            DbBackend::Postgres => Some(IsolationLevel::RepeatableRead),
            _ => None,
        };
        let options = TransactionOptions {
            isolation_level,
            ..TransactionOptions::default()
        };
        Ok(self.db.begin_with_options(options).await?)
    }
}

/// Returns the ids and the sizes of the pools of a project.
pub(in crate::control::store) async fn sizes(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<Vec<(String, u64)>, StoreError> {
    let sizes: Vec<(String, i32)> = of_project(project)
        .select_only()
        .column(pool::Column::Id)
        .column(pool::Column::Size)
        .into_tuple()
        .all(db)
        .await?;
    let sizes = sizes.into_iter();
    sizes
        .map(|(id, size)| match u64::try_from(size) {
            Ok(size) => Ok((id, size)),
            Err(_) => Err(corrupt("pool size", size)),
        })
        .collect()
}

/// Returns the number of pools of a project.
pub(in crate::control::store) async fn count(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    Ok(of_project(project).count(db).await?)
}

async fn acquired_counts(
    db: &impl ConnectionTrait,
    pools: &[PoolId],
) -> Result<Vec<(String, i64)>, StoreError> {
    let rows = browser::Entity::find()
        .select_only()
        .column(browser::Column::PoolId)
        .column_as(browser::Column::Id.count(), "count")
        .filter(browser::Column::PoolId.is_in(pools.iter().map(PoolId::as_str)))
        .filter(leased::is_live())
        .group_by(browser::Column::PoolId)
        .into_tuple();
    Ok(rows.all(db).await?)
}
