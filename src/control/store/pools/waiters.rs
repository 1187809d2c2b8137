//! The clients that wait for a browser of a pool, in the order in which they are served.

use std::collections::{HashMap, HashSet};

use sea_orm::{
    ActiveValue::{NotSet, Set},
    ColumnTrait, ConnectionTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder, Select,
    sea_query::{Expr, OnConflict},
};

use crate::{
    api::ids::PoolId,
    control::store::{ControlProcessId, Hint, Store, StoreError, corrupt, entity::pool_waiter},
};

/// The most waiters that one statement removes.
const REMOVE_BATCH: usize = 500;

/// The place of a client in the order of all that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterTicket(i64);

/// A client that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    pub ticket: WaiterTicket,
    /// The process that it is connected to.
    pub process: Option<ControlProcessId>,
}

impl Store {
    /// Adds a client of this process to those that wait for a browser of a pool.
    pub async fn add_waiter(&self, pool: &PoolId) -> Result<WaiterTicket, StoreError> {
        let row = pool_waiter::ActiveModel {
            ticket: NotSet,
            pool_id: Set(pool.to_string()),
            process_id: Set(self.process_column()),
        };
        let inserted = pool_waiter::Entity::insert(row).exec(&self.writer).await?;
        Ok(WaiterTicket(inserted.last_insert_id))
    }

    /// Adds a client of this process at the place that it had before, unless it still has it.
    pub async fn restore_waiter(
        &self,
        pool: &PoolId,
        ticket: WaiterTicket,
    ) -> Result<(), StoreError> {
        let row = pool_waiter::ActiveModel {
            ticket: Set(ticket.0),
            pool_id: Set(pool.to_string()),
            process_id: Set(self.process_column()),
        };
        let keep = OnConflict::column(pool_waiter::Column::Ticket)
            .do_nothing()
            .to_owned();
        pool_waiter::Entity::insert(row)
            .on_conflict(keep)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns the tickets of this process, with their pools.
    pub async fn own_waiters(&self) -> Result<HashMap<WaiterTicket, PoolId>, StoreError> {
        let rows = pool_waiter::Entity::find()
            .filter(self.is_own_waiter())
            .all(&self.db)
            .await?;
        let rows = rows.into_iter().map(|row| {
            let pool = row.pool_id.parse();
            let pool = pool.map_err(|_| corrupt("pool id", &row.pool_id))?;
            Ok((WaiterTicket(row.ticket), pool))
        });
        rows.collect()
    }

    /// Removes all clients of this process.
    pub async fn remove_own_waiters(&self) -> Result<(), StoreError> {
        pool_waiter::Entity::delete_many()
            .filter(self.is_own_waiter())
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    fn is_own_waiter(&self) -> Expr {
        match self.process_column() {
            Some(process) => pool_waiter::Column::ProcessId.eq(process),
            None => pool_waiter::Column::ProcessId.is_null(),
        }
    }

    /// Returns the client that has waited longest for a browser of a pool.
    pub async fn first_waiter(&self, pool: &PoolId) -> Result<Option<Waiter>, StoreError> {
        let row = of_pool(pool)
            .order_by_asc(pool_waiter::Column::Ticket)
            .one(&self.db)
            .await?;
        Ok(row.map(|row| Waiter {
            ticket: WaiterTicket(row.ticket),
            process: row.process_id.map(ControlProcessId),
        }))
    }

    /// Removes clients that do not wait any more. Those of other processes may be served next.
    pub async fn remove_waiters(
        &self,
        pool: &PoolId,
        tickets: &[WaiterTicket],
    ) -> Result<(), StoreError> {
        remove(&self.writer, tickets).await?;
        self.hint(Hint::Pool(pool.clone()));
        Ok(())
    }

    /// Removes the clients of processes that do not run. Returns the pools that they waited for.
    pub async fn remove_lost_waiters(
        &self,
        live: &HashSet<ControlProcessId>,
    ) -> Result<HashSet<PoolId>, StoreError> {
        let is_lost = pool_waiter::Column::ProcessId
            .is_null()
            .or(pool_waiter::Column::ProcessId.is_not_in(live.iter().map(|id| id.0)));
        let lost = pool_waiter::Entity::find()
            .filter(is_lost)
            .all(&self.db)
            .await?;
        let tickets: Vec<WaiterTicket> = lost.iter().map(|row| WaiterTicket(row.ticket)).collect();
        remove(&self.writer, &tickets).await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("pool id", id));
        let pools: Result<HashSet<PoolId>, StoreError> =
            lost.into_iter().map(|row| parse(row.pool_id)).collect();
        let pools = pools?;
        for pool in &pools {
            self.hint(Hint::Pool(pool.clone()));
        }
        Ok(pools)
    }
}

/// Removes waiters.
pub(super) async fn remove(
    db: &impl ConnectionTrait,
    tickets: &[WaiterTicket],
) -> Result<(), StoreError> {
    for tickets in tickets.chunks(REMOVE_BATCH) {
        pool_waiter::Entity::delete_many()
            .filter(pool_waiter::Column::Ticket.is_in(tickets.iter().map(|ticket| ticket.0)))
            .exec(db)
            .await?;
    }
    Ok(())
}

/// Selects the clients that wait for a browser of a pool.
pub(super) fn of_pool(pool: &PoolId) -> Select<pool_waiter::Entity> {
    pool_waiter::Entity::find().filter(pool_waiter::Column::PoolId.eq(pool.as_str()))
}
