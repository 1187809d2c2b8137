//! Leases hosts to sessions, and reserves them for pools.

use chrono::{DateTime, Utc};
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, ExprTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait,
    sea_query::{Expr, LockBehavior, LockType},
};

use super::{Fleet, HostMode, HostRow, is_not_draining, state_text};
use crate::{
    api::{
        ids::{BrowserId, HostId, PoolId},
        viewport::Viewport,
    },
    control::{
        hosts::state::State,
        store::{Hint, Store, StoreError, entity::host, to_millis},
    },
};

impl Store {
    /// Leases a ready host of the fleet and the mode, with room for the viewport, to a session: the
    /// one that became ready last, whose memory is most likely not swapped out. Returns `None` if
    /// there is none that no pool has reserved.
    pub async fn claim_host(
        &self,
        fleet: Fleet,
        mode: HostMode,
        viewport: Viewport,
        session: &BrowserId,
        now: DateTime<Utc>,
    ) -> Result<Option<HostRow>, StoreError> {
        self.claim(fits(fleet, mode, viewport), session, None, now)
            .await
    }

    /// Leases a ready host to a session like [`Self::claim_host`], and reserves it for a pool.
    /// Hosts that are reserved for the pool come first.
    pub async fn claim_host_for_pool(
        &self,
        fleet: Fleet,
        mode: HostMode,
        viewport: Viewport,
        session: &BrowserId,
        pool: &PoolId,
        now: DateTime<Utc>,
    ) -> Result<Option<HostRow>, StoreError> {
        let reserved = suits(fleet, mode, viewport).add(host::Column::PoolId.eq(pool.as_str()));
        let claimed = self.claim(reserved, session, Some(pool), now).await?;
        if claimed.is_some() {
            return Ok(claimed);
        }
        let free = fits(fleet, mode, viewport);
        self.claim(free, session, Some(pool), now).await
    }

    async fn claim(
        &self,
        condition: Condition,
        session: &BrowserId,
        pool: Option<&PoolId>,
        now: DateTime<Utc>,
    ) -> Result<Option<HostRow>, StoreError> {
        // On PostgreSQL several claims take several hosts and do not wait for each other. SQLite
        // has a single writer and no such locks.
        let candidate = host::Entity::find()
            .select_only()
            .column(host::Column::Id)
            .filter(condition)
            .filter(host::Column::State.eq(state_text(State::Ready)))
            .order_by_desc(host::Column::ChangedAt)
            .limit(1)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .into_query();
        let claimed = host::Entity::update_many()
            .col_expr(host::Column::State, Expr::value(state_text(State::Leased)))
            .col_expr(host::Column::SessionId, Expr::value(session.as_str()))
            .col_expr(host::Column::PoolId, Expr::value(pool.map(PoolId::as_str)))
            .col_expr(host::Column::ChangedAt, Expr::value(to_millis(now)))
            // Not IN: PostgreSQL may then search once for each row, and find several hosts.
            .filter(
                Expr::col(host::Column::Id).eq(Expr::SubQuery(None, Box::new(candidate.into()))),
            )
            .filter(host::Column::State.eq(state_text(State::Ready)))
            .exec_with_returning(&self.writer)
            .await?;
        claimed
            .into_iter()
            .next()
            .map(HostRow::try_from)
            .transpose()
    }

    /// Lets any session have a ready host that is reserved for a pool. Returns false if it is not
    /// ready any more.
    pub async fn unreserve_host(&self, id: &HostId, pool: &PoolId) -> Result<bool, StoreError> {
        let freed = host::Entity::update_many()
            .col_expr(host::Column::PoolId, Expr::value(None::<String>))
            .filter(host::Column::Id.eq(id.as_str()))
            .filter(host::Column::PoolId.eq(pool.as_str()))
            .filter(host::Column::State.eq(state_text(State::Ready)))
            .exec(&self.writer)
            .await?;
        self.hint(Hint::Hosts);
        Ok(freed.rows_affected > 0)
    }
}

/// Returns the condition that a host gets further sessions, of this mode and viewport, and is not
/// reserved for a pool.
pub(super) fn fits(fleet: Fleet, mode: HostMode, viewport: Viewport) -> Condition {
    suits(fleet, mode, viewport).add(host::Column::PoolId.is_null())
}

/// Returns the condition that a host gets further sessions, of this mode and viewport.
fn suits(fleet: Fleet, mode: HostMode, viewport: Viewport) -> Condition {
    let has_room = |max: host::Column, side: u32| {
        Condition::any()
            .add(max.is_null())
            .add(max.gte(i64::from(side)))
    };
    is_not_draining(fleet)
        .add(host::Column::Headless.eq(mode.headless))
        .add(host::Column::KioskMode.eq(mode.kiosk_mode))
        .add(has_room(host::Column::MaxWidth, viewport.width))
        .add(has_room(host::Column::MaxHeight, viewport.height))
}
