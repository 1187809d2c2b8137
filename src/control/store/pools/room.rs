//! The browsers that a pool can lease within its size.
//!
//! The idle ones may be more, after its size was reduced or a leased one has become idle again.

use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter,
    QuerySelect, QueryTrait,
    sea_query::{Expr, LockType, Query},
};

use super::{PoolBrowserState, PoolLeaseError, PoolRow, available::is_in, leased};
use crate::{
    api::ids::PoolId,
    control::store::{
        Store, StoreError, corrupt,
        entity::{browser, pool, pool_browser},
    },
};

/// The number of browsers that a pool can lease before it has leased its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Full,
    /// Fewer than are idle or being started.
    ForSome,
    ForAll,
}

impl Store {
    /// Begins a transaction until whose end the pool is neither changed nor deleted, and has room
    /// for another lease.
    pub(super) async fn begin_lease(
        &self,
        pool: &PoolId,
    ) -> Result<(DatabaseTransaction, PoolRow), PoolLeaseError> {
        // Several leases run at once, unless together they could exceed the size.
        for lock in [LockType::Share, LockType::Update] {
            let is_alone = matches!(lock, LockType::Update);
            let transaction = self.begin_write().await?;
            let found = pool::Entity::find_by_id(pool.as_str())
                .lock(lock)
                .one(&transaction)
                .await
                .map_err(StoreError::from)?;
            let found: PoolRow = found.ok_or(PoolLeaseError::NoPool)?.try_into()?;
            match room(&transaction, &found).await? {
                Room::Full => break,
                Room::ForSome if !is_alone => {}
                Room::ForSome | Room::ForAll => return Ok((transaction, found)),
            }
        }
        Err(PoolLeaseError::NoneAvailable)
    }
}

/// Returns how many browsers a pool can lease. One statement counts both, so that a browser that
/// is leased or returned meanwhile is counted once.
async fn room(db: &impl ConnectionTrait, pool: &PoolRow) -> Result<Room, StoreError> {
    let acquired = browser::Entity::find()
        .select_only()
        .column_as(browser::Column::Id.count(), "count")
        .filter(browser::Column::PoolId.eq(pool.id.as_str()))
        .filter(leased::is_live())
        .into_query();
    // One that is being started may become idle before a browser is selected.
    let unleased = Condition::any()
        .add(is_in(PoolBrowserState::Idle))
        .add(is_in(PoolBrowserState::Filling));
    let unleased = pool_browser::Entity::find()
        .select_only()
        .column_as(pool_browser::Column::Id.count(), "count")
        .filter(pool_browser::Column::PoolId.eq(pool.id.as_str()))
        .filter(unleased)
        .into_query();
    let counts = Query::select()
        .expr_as(Expr::SubQuery(None, Box::new(acquired.into())), "acquired")
        .expr_as(Expr::SubQuery(None, Box::new(unleased.into())), "unleased")
        .to_owned();
    let row = db.query_one(&counts).await?;
    let row = row.ok_or_else(|| corrupt("counts of a pool", "no row"))?;
    let count = |index| row.try_get_by_index::<i64>(index);
    let (acquired, unleased, size) = (count(0)?, count(1)?, i64::from(pool.settings.size));
    Ok(match acquired {
        _ if acquired >= size => Room::Full,
        _ if acquired + unleased > size => Room::ForSome,
        _ => Room::ForAll,
    })
}
