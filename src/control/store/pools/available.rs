//! Selects the browsers of pools that can be leased.

use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, ExprTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select,
    sea_query::{Expr, LockBehavior, LockType, SelectStatement},
};

use super::{
    Claim, PoolBrowserRow, PoolBrowserState, PoolRow,
    browsers::{text, to_column},
    profiles::required_version,
    waiters,
};
use crate::control::{
    hosts::state::State,
    store::{
        StoreError,
        entity::{host, pool, pool_browser, profile},
        hosts::state_text,
    },
};

/// Returns the browser that is leased next: the one that has been idle for the longest time, of
/// those of the pool's present configuration. `None` also if the claim is for a pool that no client
/// waits for, and one does.
pub(super) async fn next_idle(
    transaction: &DatabaseTransaction,
    pool: &PoolRow,
    claim: Claim,
) -> Result<Option<PoolBrowserRow>, StoreError> {
    let mut query = pool_browser::Entity::find()
        .filter(pool_browser::Column::PoolId.eq(pool.id.as_str()))
        .filter(is_in(PoolBrowserState::Idle))
        .filter(pool_browser::Column::ConfigHash.eq(&pool.config_hash))
        .filter(pool_browser::Column::FlushCount.eq(to_column(pool.flush_count)?));
    if claim == Claim::NoWaiters {
        query = query.filter(Expr::not_exists(waiters::of_pool(&pool.id).into_query()));
    }
    if let Some(version) = required_version(transaction, pool).await? {
        query = query.filter(pool_browser::Column::ProfileVersion.eq(to_column(version)?));
    }
    let row = query
        .order_by_asc(pool_browser::Column::ChangedAt)
        .order_by_asc(pool_browser::Column::Id)
        .limit(1)
        // On PostgreSQL several leases take several browsers and do not wait for each other.
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
        .one(transaction)
        .await?;
    row.map(PoolBrowserRow::try_from).transpose()
}

/// Returns the query of the browsers that can be leased: those of the present configuration of
/// their pool whose hosts run them.
pub(super) fn available() -> Select<pool_browser::Entity> {
    let is_run = host::Entity::find()
        .select_only()
        .column(host::Column::Id)
        .filter(
            Expr::col((host::Entity, host::Column::SessionId))
                .equals((pool_browser::Entity, pool_browser::Column::Id)),
        )
        .filter(host::Column::State.eq(state_text(State::Leased)))
        .into_query();
    let is_same = |of_pool: pool::Column, of_browser: pool_browser::Column| {
        Expr::col((pool::Entity, of_pool)).equals((pool_browser::Entity, of_browser))
    };
    let is_current = pool::Entity::find()
        .select_only()
        .column(pool::Column::Id)
        .filter(is_same(pool::Column::Id, pool_browser::Column::PoolId))
        .filter(is_same(
            pool::Column::ConfigHash,
            pool_browser::Column::ConfigHash,
        ))
        .filter(is_same(
            pool::Column::FlushCount,
            pool_browser::Column::FlushCount,
        ))
        .filter(
            pool::Column::RefreshOnProfileUpdate
                .eq(false)
                .or(pool::Column::ProfileId.is_null())
                .or(Expr::exists(current_profile())),
        )
        .into_query();
    pool_browser::Entity::find()
        .filter(is_in(PoolBrowserState::Idle))
        .filter(Expr::exists(is_run))
        .filter(Expr::exists(is_current))
}

/// Selects the profile of a pool, if its current version is that of the browser.
fn current_profile() -> SelectStatement {
    profile::Entity::find()
        .select_only()
        .column(profile::Column::Id)
        .filter(
            Expr::col((profile::Entity, profile::Column::Id))
                .equals((pool::Entity, pool::Column::ProfileId)),
        )
        .filter(
            Expr::col((profile::Entity, profile::Column::Version))
                .equals((pool_browser::Entity, pool_browser::Column::ProfileVersion)),
        )
        .into_query()
}

/// Returns the condition that a browser is in this state.
pub(super) fn is_in(state: PoolBrowserState) -> Expr {
    pool_browser::Column::State.eq(text(state))
}

/// Returns the condition that the session of a host is a browser of a pool that no client has.
pub(in crate::control::store) fn is_pooled() -> Expr {
    let pooled = pool_browser::Entity::find()
        .select_only()
        .column(pool_browser::Column::Id)
        .filter(
            Expr::col((pool_browser::Entity, pool_browser::Column::Id))
                .equals((host::Entity, host::Column::SessionId)),
        )
        .into_query();
    Expr::exists(pooled)
}
