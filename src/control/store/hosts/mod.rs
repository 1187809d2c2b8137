//! The table of hosts.
//!
//! A row changes by a compare-and-set on the part that the state machine knows, so that of several
//! who change a host at once, one succeeds, and the others find out.

use std::net::SocketAddr;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, ExprTrait, IntoActiveModel,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait, UpdateMany, sea_query::Expr,
};

use super::{
    Hint, Store, StoreError,
    browsers::{has_not_ended, is_live},
    corrupt,
    entity::{browser, host},
    from_millis,
    pools::is_pooled,
    processes::ControlProcessId,
    profiles::browsers_with_write_lock,
    to_millis,
};
use crate::{
    api::{
        ids::{BrowserId, HostId, PoolId},
        viewport::Viewport,
    },
    control::hosts::state::{HostLife, RESTART_TIMEOUT, State},
};

mod claim;
#[cfg(test)]
mod tests;

use claim::fits;

/// The fleet that a host belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fleet {
    /// This machine: an agent is a child process
    Local,
    /// The host itself: it has registered, such as a VM
    Registered,
}

/// The mode in which the browser of a host was started. A session gets only a host of the mode that
/// it demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMode {
    pub headless: bool,
    pub kiosk_mode: bool,
}

/// The part of a row of the table of hosts that every fleet has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRow {
    pub id: HostId,
    pub life: HostLife,
    /// The address of a registered host. Only the process that runs a local one knows its address.
    pub address: Option<SocketAddr>,
    /// When the life last changed.
    pub changed_at: DateTime<Utc>,
    /// The control process that changed it last, except by a lease, and does what follows from
    /// that.
    pub process: Option<ControlProcessId>,
    /// Whether the last session of a retiring host has ended at the agent, and control has all that
    /// is to be fetched from it.
    pub is_settled: bool,
    /// The pool that the host is reserved for.
    pub pool: Option<PoolId>,
}

pub(super) fn fleet_text(fleet: Fleet) -> &'static str {
    match fleet {
        Fleet::Local => "local",
        Fleet::Registered => "registered",
    }
}

pub(super) fn state_text(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Ready => "ready",
        State::Leased => "leased",
        State::Recycling => "recycling",
        State::Lost => "lost",
        State::Retiring => "retiring",
        State::Gone => "gone",
    }
}

pub(super) const STATES: [State; 7] = [
    State::Starting,
    State::Ready,
    State::Leased,
    State::Recycling,
    State::Lost,
    State::Retiring,
    State::Gone,
];

fn parse_state(text: &str) -> Result<State, StoreError> {
    let found = STATES.into_iter().find(|state| state_text(*state) == text);
    found.ok_or_else(|| corrupt("host state", text))
}

/// Reads the columns that the state machine knows.
pub(super) fn life_of(row: &host::Model) -> Result<HostLife, StoreError> {
    let session = row.session_id.as_ref();
    let session = session.map(|id| id.parse().map_err(|_| corrupt("browser id", id)));
    Ok(HostLife {
        state: parse_state(&row.state)?,
        generation: u64::try_from(row.generation)
            .map_err(|_| corrupt("generation", row.generation))?,
        session: session.transpose()?,
        is_draining: row.draining,
        is_restarting: row.restarting,
    })
}

impl TryFrom<host::Model> for HostRow {
    type Error = StoreError;

    fn try_from(row: host::Model) -> Result<Self, StoreError> {
        let address = row.address.as_deref().map(str::parse).transpose();
        let pool = row.pool_id.as_deref();
        let pool = pool.map(|id| id.parse().map_err(|_| corrupt("pool id", id)));
        Ok(HostRow {
            life: life_of(&row)?,
            address: address.map_err(|_| corrupt("host address", &row.id))?,
            changed_at: from_millis(row.changed_at)?,
            process: row.process_id.map(ControlProcessId),
            is_settled: row.settled,
            pool: pool.transpose()?,
            id: row.id.parse().map_err(|_| corrupt("host id", &row.id))?,
        })
    }
}

impl Store {
    /// Inserts the row of a host, which is reserved for a pool if there is one.
    pub async fn add_host(
        &self,
        id: &HostId,
        fleet: Fleet,
        mode: HostMode,
        life: &HostLife,
        pool: Option<&PoolId>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let row = host::Model {
            id: id.to_string(),
            fleet: fleet_text(fleet).to_owned(),
            state: state_text(life.state).to_owned(),
            generation: to_generation_column(life.generation)?,
            session_id: life.session.as_ref().map(BrowserId::to_string),
            draining: life.is_draining,
            restarting: life.is_restarting,
            headless: mode.headless,
            kiosk_mode: mode.kiosk_mode,
            max_width: None,
            max_height: None,
            address: None,
            boot_id: None,
            version: None,
            labels: None,
            capabilities: None,
            public_key: None,
            heartbeat_at: None,
            created_at: to_millis(now),
            changed_at: to_millis(now),
            process_id: self.process_column(),
            settled: false,
            pool_id: pool.map(PoolId::to_string),
            lease_count: 0,
        };
        let row = row.into_active_model().reset_all();
        host::Entity::insert(row)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }

    /// Finds a host.
    pub async fn find_host(&self, id: &HostId) -> Result<Option<HostRow>, StoreError> {
        let row = host::Entity::find_by_id(id.to_string())
            .one(&self.db)
            .await?;
        row.map(HostRow::try_from).transpose()
    }

    /// Finds the registered host that is leased to a session.
    pub async fn find_host_of(&self, session: &BrowserId) -> Result<Option<HostId>, StoreError> {
        let row = host::Entity::find()
            .filter(host::Column::SessionId.eq(session.as_str()))
            .filter(host::Column::Fleet.eq(fleet_text(Fleet::Registered)))
            .one(&self.db)
            .await?;
        Ok(row.map(HostRow::try_from).transpose()?.map(|row| row.id))
    }

    /// Lists the hosts of a fleet that are not gone, the oldest first.
    pub async fn hosts_of(&self, fleet: Fleet) -> Result<Vec<HostRow>, StoreError> {
        let rows = host::Entity::find()
            .filter(host::Column::Fleet.eq(fleet_text(fleet)))
            .filter(host::Column::State.ne(state_text(State::Gone)))
            .order_by_asc(host::Column::Id)
            .all(&self.db)
            .await?;
        rows.into_iter().map(HostRow::try_from).collect()
    }

    /// Changes a host from `before` to `after`. Returns false, and changes nothing, if it is not
    /// as `before` any more.
    pub async fn change_host(
        &self,
        id: &HostId,
        before: &HostLife,
        after: &HostLife,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let change = self.changing(id, before, after, now)?;
        let is_changed = change.exec(&self.writer).await?.rows_affected > 0;
        if is_changed && after.state == State::Ready {
            self.hint(Hint::Hosts);
        }
        Ok(is_changed)
    }

    /// Returns whether a session may soon get a host of the fleet and the mode, with room for the
    /// viewport: one that is ready, that is being recycled, or whose agent is started again.
    pub async fn expects_host(
        &self,
        fleet: Fleet,
        mode: HostMode,
        viewport: Viewport,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let expected = [State::Ready, State::Recycling];
        let fits = fits(fleet, mode, viewport);
        let starts_again = fits
            .clone()
            .add(host::Column::Generation.gt(0))
            .add(host::Column::ChangedAt.gte(to_millis(now - RESTART_TIMEOUT)));
        Ok(self.count_hosts_in(expected, fits).await? > 0
            || self.count_hosts_in([State::Starting], starts_again).await? > 0)
    }

    /// Returns the number of hosts that are free for such a session, or about to be, as they have
    /// been starting or recycled only since `since` or later.
    pub async fn count_free_hosts(
        &self,
        fleet: Fleet,
        mode: HostMode,
        viewport: Viewport,
        since: DateTime<Utc>,
    ) -> Result<u64, StoreError> {
        let fits = fits(fleet, mode, viewport);
        let is_new = host::Column::ChangedAt.gte(to_millis(since));
        let soon = [State::Starting, State::Recycling];
        let soon = self.count_hosts_in(soon, fits.clone().add(is_new)).await?;
        Ok(soon + self.count_hosts_in([State::Ready], fits).await?)
    }

    async fn count_hosts_in<const N: usize>(
        &self,
        states: [State; N],
        condition: Condition,
    ) -> Result<u64, StoreError> {
        let found = host::Entity::find()
            .filter(condition)
            .filter(host::Column::State.is_in(states.map(state_text)))
            .count(&self.db);
        Ok(found.await?)
    }

    /// Returns the registered hosts that are leased to a browser that has no row, or ended before
    /// `before`, with its id.
    pub async fn abandoned_hosts(
        &self,
        before: DateTime<Utc>,
    ) -> Result<Vec<(HostId, BrowserId)>, StoreError> {
        let is_in_use = is_live()
            .or(browser::Column::DeletedAt.gte(to_millis(before)))
            // Its host still has the profile that is being saved.
            .or(has_not_ended().and(browser::Column::Id.in_subquery(browsers_with_write_lock())));
        let in_use = browser::Entity::find()
            .select_only()
            .column(browser::Column::Id)
            .filter(
                Expr::col((browser::Entity, browser::Column::Id))
                    .equals((host::Entity, host::Column::SessionId)),
            )
            .filter(is_in_use)
            .into_query();
        let rows = host::Entity::find()
            .filter(host::Column::Fleet.eq(fleet_text(Fleet::Registered)))
            .filter(host::Column::State.eq(state_text(State::Leased)))
            .filter(Expr::exists(in_use).not())
            .filter(is_pooled().not())
            .all(&self.db)
            .await?;
        let rows = rows.into_iter().map(HostRow::try_from);
        rows.filter_map(|row| match row {
            Ok(row) => Some(Ok((row.id, row.life.session?))),
            Err(error) => Some(Err(error)),
        })
        .collect()
    }

    /// Returns the number of hosts of a fleet that run sessions, or will.
    pub async fn count_usable_hosts(&self, fleet: Fleet) -> Result<u64, StoreError> {
        let usable = [
            State::Starting,
            State::Ready,
            State::Leased,
            State::Recycling,
        ];
        self.count_hosts_in(usable, is_not_draining(fleet)).await
    }

    /// Deletes the row of a host.
    pub async fn delete_host(&self, id: &HostId) -> Result<(), StoreError> {
        host::Entity::delete_by_id(id.to_string())
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Deletes the rows of all hosts of a fleet.
    pub async fn delete_hosts_of(&self, fleet: Fleet) -> Result<(), StoreError> {
        host::Entity::delete_many()
            .filter(host::Column::Fleet.eq(fleet_text(fleet)))
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Makes this process do what follows from the life of a host. Returns false if the life has
    /// changed, or another process does that now.
    pub async fn adopt_host(&self, row: &HostRow) -> Result<bool, StoreError> {
        let is_same = match row.process {
            Some(process) => host::Column::ProcessId.eq(process.0),
            None => host::Column::ProcessId.is_null(),
        };
        let adopted = unchanged(&row.id, &row.life)?
            .col_expr(host::Column::ProcessId, Expr::value(self.process_column()))
            .filter(is_same)
            .exec(&self.writer)
            .await?;
        Ok(adopted.rows_affected > 0)
    }

    /// Records that the last session of a host is settled, unless the host has changed.
    pub async fn set_host_settled(&self, row: &HostRow) -> Result<(), StoreError> {
        unchanged(&row.id, &row.life)?
            .col_expr(host::Column::Settled, Expr::value(true))
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Begins the change of a host from `before` to `after`.
    pub(super) fn changing(
        &self,
        id: &HostId,
        before: &HostLife,
        after: &HostLife,
        now: DateTime<Utc>,
    ) -> Result<UpdateMany<host::Entity>, StoreError> {
        let change = unchanged(id, before)?
            .col_expr(host::Column::Restarting, Expr::value(after.is_restarting));
        let with_flag = HostLife {
            is_restarting: after.is_restarting,
            ..before.clone()
        };
        // The process that works on the host goes on.
        if with_flag == *after {
            return Ok(change);
        }
        let session = after.session.as_ref().map(BrowserId::to_string);
        let change = change
            .col_expr(host::Column::State, Expr::value(state_text(after.state)))
            .col_expr(
                host::Column::Generation,
                Expr::value(to_generation_column(after.generation)?),
            )
            .col_expr(host::Column::SessionId, Expr::value(session))
            .col_expr(host::Column::Draining, Expr::value(after.is_draining))
            .col_expr(host::Column::ProcessId, Expr::value(self.process_column()))
            .col_expr(host::Column::Settled, Expr::value(false))
            .col_expr(host::Column::ChangedAt, Expr::value(to_millis(now)));
        Ok(match after.state {
            // The machine can register anew, as another host.
            State::Gone => change.col_expr(host::Column::PublicKey, Expr::value(None::<Vec<u8>>)),
            _ => change,
        })
    }
}

/// Returns the condition that a host of the fleet gets sessions.
fn is_not_draining(fleet: Fleet) -> Condition {
    Condition::all()
        .add(host::Column::Fleet.eq(fleet_text(fleet)))
        .add(host::Column::Draining.eq(false))
}

/// Begins a change of the host that is still as `life`.
pub(super) fn unchanged(
    id: &HostId,
    life: &HostLife,
) -> Result<UpdateMany<host::Entity>, StoreError> {
    let is_same_session = match &life.session {
        Some(session) => host::Column::SessionId.eq(session.as_str()),
        None => host::Column::SessionId.is_null(),
    };
    Ok(host::Entity::update_many()
        .filter(host::Column::Id.eq(id.as_str()))
        .filter(host::Column::State.eq(state_text(life.state)))
        .filter(host::Column::Generation.eq(to_generation_column(life.generation)?))
        .filter(host::Column::Draining.eq(life.is_draining))
        .filter(host::Column::Restarting.eq(life.is_restarting))
        .filter(is_same_session))
}

pub(super) fn to_generation_column(generation: u64) -> Result<i64, StoreError> {
    i64::try_from(generation).map_err(|_| corrupt("generation", generation))
}
