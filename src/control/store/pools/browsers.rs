//! The browsers of pools that no client has.
//!
//! A row names the session of its host. When a client leases the browser, its row is replaced by
//! one of the table of browsers in the same transaction, and the session gets that id: what a
//! client gets was never named before.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, ExprTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait,
    sea_query::{Expr, LockType},
};

use super::{
    PoolRow, WaiterTicket,
    available::{available, is_in, next_idle},
    leased,
    profiles::{add_names, to_version},
    waiters,
};
use crate::{
    api::ids::{BrowserId, HostId, PoolId},
    control::{
        hosts::state::State,
        store::{
            BrowserProfileRow, BrowserRow, ControlProcessId, CreateBrowserError, Hint, HostRow,
            NewBrowserRow, Store, StoreError, corrupt,
            entity::{browser, host, pool, pool_browser, pool_waiter, profile_write_lock},
            from_millis,
            hosts::{state_text, to_generation_column},
            to_millis,
        },
    },
};

/// The most browsers that one statement adds.
const ADD_BATCH: usize = 100;

/// The state of a browser of a pool that no client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolBrowserState {
    /// The browser is being started.
    Filling,
    /// The browser can be leased.
    Idle,
    /// The browser is being ended.
    Discarding,
}

/// The properties with which a browser was started for a pool. A browser is leased only if they are
/// the pool's present ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolBrowserStart {
    pub config_hash: String,
    /// The flushes of the pool before.
    pub flush_count: u64,
    /// The version of the profile that was loaded, 0 for none.
    pub profile_version: u64,
}

/// A browser of a pool that no client has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolBrowserRow {
    /// The session of its host.
    pub id: BrowserId,
    pub pool: PoolId,
    pub state: PoolBrowserState,
    /// The properties with which it was started.
    pub start: PoolBrowserStart,
    /// Its host with the generation, once it has one.
    pub host: Option<(HostId, u64)>,
    /// The process that starts or discards it.
    pub process: Option<ControlProcessId>,
    pub changed_at: DateTime<Utc>,
}

/// A browser that a client has just got.
#[derive(Debug, Clone)]
pub struct LeasedBrowser {
    pub row: BrowserRow,
    pub host: HostRow,
    pub start: PoolBrowserStart,
    /// Whether its profile is its own, and is to be loaded. That of its pool is loaded already.
    pub has_own_profile: bool,
}

/// The right of a client to the next idle browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No client waits.
    NoWaiters,
    /// The client has waited longer than all others.
    First(WaiterTicket),
}

/// Why no browser was leased.
#[derive(Debug, thiserror::Error)]
pub enum PoolLeaseError {
    #[error("no pool with that id or name")]
    NoPool,
    /// None is idle, or others wait.
    #[error("no browser of the pool is available")]
    NoneAvailable,
    /// The profile that the browser is to start with cannot be used.
    #[error(transparent)]
    Profile(CreateBrowserError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(super) fn text(state: PoolBrowserState) -> &'static str {
    match state {
        PoolBrowserState::Filling => "filling",
        PoolBrowserState::Idle => "idle",
        PoolBrowserState::Discarding => "discarding",
    }
}

impl TryFrom<pool_browser::Model> for PoolBrowserRow {
    type Error = StoreError;

    fn try_from(row: pool_browser::Model) -> Result<Self, StoreError> {
        let states = [
            PoolBrowserState::Filling,
            PoolBrowserState::Idle,
            PoolBrowserState::Discarding,
        ];
        let state = states.into_iter().find(|state| text(*state) == row.state);
        let host = row.host_id.zip(row.host_generation);
        let host = host.map(|(id, generation)| {
            let generation = u64::try_from(generation);
            Ok::<_, StoreError>((
                id.parse().map_err(|_| corrupt("host id", id))?,
                generation.map_err(|_| corrupt("generation", &row.id))?,
            ))
        });
        Ok(PoolBrowserRow {
            state: state.ok_or_else(|| corrupt("pool browser state", &row.state))?,
            pool: row
                .pool_id
                .parse()
                .map_err(|_| corrupt("pool id", &row.pool_id))?,
            start: PoolBrowserStart {
                config_hash: row.config_hash,
                flush_count: u64::try_from(row.flush_count)
                    .map_err(|_| corrupt("flush count", row.flush_count))?,
                profile_version: to_version(row.profile_version)?,
            },
            host: host.transpose()?,
            process: row.process_id.map(ControlProcessId),
            changed_at: from_millis(row.changed_at)?,
            id: row.id.parse().map_err(|_| corrupt("browser id", &row.id))?,
        })
    }
}

impl Store {
    /// Adds browsers that are about to be started for a pool.
    pub async fn add_pool_browsers(
        &self,
        ids: &[BrowserId],
        pool: &PoolRow,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let flush_count = to_column(pool.flush_count)?;
        let row = |id: &BrowserId| pool_browser::Model {
            id: id.to_string(),
            pool_id: pool.id.to_string(),
            state: text(PoolBrowserState::Filling).to_owned(),
            config_hash: pool.config_hash.clone(),
            profile_version: 0,
            flush_count,
            host_id: None,
            host_generation: None,
            process_id: self.process_column(),
            changed_at: to_millis(now),
        };
        for ids in ids.chunks(ADD_BATCH) {
            let rows = ids.iter().map(|id| row(id).into_active_model().reset_all());
            pool_browser::Entity::insert_many(rows)
                .exec_without_returning(&self.writer)
                .await?;
        }
        Ok(())
    }

    /// Makes a browser that was started available, with this version of its pool's profile, or 0.
    /// Returns false if it is to be discarded.
    pub async fn set_pool_browser_idle(
        &self,
        id: &BrowserId,
        (host, generation): (&HostId, u64),
        profile_version: u64,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let generation = to_generation_column(generation)?;
        let profile_version = to_column(profile_version)?;
        let changed = pool_browser::Entity::update_many()
            .col_expr(
                pool_browser::Column::State,
                Expr::value(text(PoolBrowserState::Idle)),
            )
            .col_expr(pool_browser::Column::HostId, Expr::value(host.as_str()))
            .col_expr(
                pool_browser::Column::HostGeneration,
                Expr::value(generation),
            )
            .col_expr(
                pool_browser::Column::ProfileVersion,
                Expr::value(profile_version),
            )
            .col_expr(pool_browser::Column::ChangedAt, Expr::value(to_millis(now)))
            .filter(pool_browser::Column::Id.eq(id.as_str()))
            .filter(is_in(PoolBrowserState::Filling))
            .exec(&self.writer)
            .await?;
        Ok(changed.rows_affected > 0)
    }

    /// Makes this process discard idle browsers of a pool: one, or all. Returns them. If it is all,
    /// no browser that was started before is ever leased again, even if it is not idle now.
    pub async fn discard_pool_browsers(
        &self,
        pool: &PoolId,
        only: Option<&BrowserId>,
        now: DateTime<Utc>,
    ) -> Result<Vec<PoolBrowserRow>, StoreError> {
        let transaction = self.begin_write().await?;
        if only.is_none() {
            // Locks the pool: leases come before it or after it.
            pool::Entity::update_many()
                .col_expr(
                    pool::Column::FlushCount,
                    Expr::col(pool::Column::FlushCount).add(1),
                )
                .filter(pool::Column::Id.eq(pool.as_str()))
                .exec(&transaction)
                .await?;
        }
        let mut idle = pool_browser::Entity::find()
            .filter(pool_browser::Column::PoolId.eq(pool.as_str()))
            .filter(is_in(PoolBrowserState::Idle))
            // Waits for a lease in progress, which removes the row.
            .lock(LockType::Update);
        if let Some(id) = only {
            idle = idle.filter(pool_browser::Column::Id.eq(id.as_str()));
        }
        let idle = idle.all(&transaction).await?;
        let ids = idle.iter().map(|row| row.id.clone());
        pool_browser::Entity::update_many()
            .col_expr(
                pool_browser::Column::State,
                Expr::value(text(PoolBrowserState::Discarding)),
            )
            .col_expr(
                pool_browser::Column::ProcessId,
                Expr::value(self.process_column()),
            )
            .col_expr(pool_browser::Column::ChangedAt, Expr::value(to_millis(now)))
            .filter(pool_browser::Column::Id.is_in(ids))
            .exec(&transaction)
            .await?;
        transaction.commit().await?;
        idle.into_iter().map(PoolBrowserRow::try_from).collect()
    }

    /// Makes this process finish what another one did with a browser. Returns false if it did so.
    pub async fn adopt_pool_browser(
        &self,
        row: &PoolBrowserRow,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let process = match row.process {
            Some(process) => pool_browser::Column::ProcessId.eq(process.0),
            None => pool_browser::Column::ProcessId.is_null(),
        };
        let adopted = pool_browser::Entity::update_many()
            .col_expr(
                pool_browser::Column::State,
                Expr::value(text(PoolBrowserState::Discarding)),
            )
            .col_expr(
                pool_browser::Column::ProcessId,
                Expr::value(self.process_column()),
            )
            .col_expr(pool_browser::Column::ChangedAt, Expr::value(to_millis(now)))
            .filter(pool_browser::Column::Id.eq(row.id.as_str()))
            .filter(is_in(row.state))
            .filter(process)
            .exec(&self.writer)
            .await?;
        Ok(adopted.rows_affected > 0)
    }

    /// Removes the row of a browser that has ended. Returns false if there is none.
    pub async fn remove_pool_browser(&self, id: &BrowserId) -> Result<bool, StoreError> {
        let removed = pool_browser::Entity::delete_by_id(id.as_str());
        Ok(removed.exec(&self.writer).await?.rows_affected > 0)
    }

    /// Leases an idle browser of the pool's present configuration: the one that has been idle for
    /// the longest time. `new_row` returns the browser of the client, which is being created.
    pub async fn lease_pool_browser(
        &self,
        pool: &PoolId,
        claim: Claim,
        new_row: impl Fn(&PoolRow) -> NewBrowserRow,
        now: DateTime<Utc>,
    ) -> Result<LeasedBrowser, PoolLeaseError> {
        loop {
            let (transaction, mut found) = self.begin_lease(pool).await?;
            let candidate = next_idle(&transaction, &found, claim).await?;
            let candidate = candidate.ok_or(PoolLeaseError::NoneAvailable)?;
            add_names(&transaction, std::slice::from_mut(&mut found)).await?;
            let mut new = new_row(&found);
            let Some(host) = lease(&transaction, &candidate, &new, now).await? else {
                // Its host has lost it.
                drop(transaction);
                self.remove_pool_browser(&candidate.id).await?;
                continue;
            };
            let own_profile = new.profile.take();
            let of_pool = || {
                found.profile.map(|profile| BrowserProfileRow {
                    id: profile.id,
                    name: profile.name,
                    save_changes: false,
                })
            };
            new.profile = own_profile.clone().or_else(of_pool);
            let (tags, profile) = (new.tags.clone(), new.profile.clone());
            let model = self.new_browser_model(new, now)?;
            // That of the pool is not deleted before the pool, which is locked.
            if let Some(profile) = &own_profile {
                let reserved = leased::reserve_profile(&transaction, &model, profile);
                reserved.await.map_err(|error| match error {
                    CreateBrowserError::Store(error) => PoolLeaseError::Store(error),
                    error => PoolLeaseError::Profile(error),
                })?;
            }
            leased::insert_browser(&transaction, &model, &tags).await?;
            if let Claim::First(ticket) = claim {
                waiters::remove(&transaction, &[ticket]).await?;
            }
            transaction.commit().await.map_err(StoreError::from)?;
            return Ok(LeasedBrowser {
                row: BrowserRow {
                    profile,
                    ..leased::to_browser_row(model, tags)?
                },
                host,
                start: candidate.start,
                has_own_profile: own_profile.is_some(),
            });
        }
    }

    /// Makes a browser available again that was leased to a client which never got it. Nothing has
    /// used it. Returns its id, or `None` if its host has lost it.
    pub async fn return_pool_browser(
        &self,
        leased: &LeasedBrowser,
        now: DateTime<Utc>,
    ) -> Result<Option<BrowserId>, StoreError> {
        let Some(pool) = &leased.row.pool else {
            return Ok(None);
        };
        let id = BrowserId::generate();
        let transaction = self.begin_write().await?;
        browser::Entity::delete_by_id(leased.row.id.as_str())
            .exec(&transaction)
            .await?;
        // Nothing else removes the lock of a browser without a row.
        profile_write_lock::Entity::delete_many()
            .filter(profile_write_lock::Column::BrowserId.eq(leased.row.id.as_str()))
            .exec(&transaction)
            .await?;
        let host = rename_session(&transaction, &leased.row.id, &id, -1, now).await?;
        let Some(host) = host else {
            return Ok(None);
        };
        let row = pool_browser::Model {
            id: id.to_string(),
            pool_id: pool.id.to_string(),
            state: text(PoolBrowserState::Idle).to_owned(),
            config_hash: leased.start.config_hash.clone(),
            profile_version: to_column(leased.start.profile_version)?,
            flush_count: to_column(leased.start.flush_count)?,
            host_id: Some(host.id.to_string()),
            host_generation: Some(to_generation_column(host.life.generation)?),
            process_id: self.process_column(),
            changed_at: to_millis(now),
        };
        let row = row.into_active_model().reset_all();
        pool_browser::Entity::insert(row)
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        self.hint(Hint::Pool(pool.id.clone()));
        Ok(Some(id))
    }

    /// Returns the pools that have both available browsers and waiters.
    pub async fn pools_to_serve(&self) -> Result<Vec<PoolId>, StoreError> {
        let has_waiters = pool_waiter::Entity::find()
            .select_only()
            .column(pool_waiter::Column::Ticket)
            .filter(
                Expr::col((pool_waiter::Entity, pool_waiter::Column::PoolId))
                    .equals((pool_browser::Entity, pool_browser::Column::PoolId)),
            )
            .into_query();
        let pools: Vec<String> = available()
            .select_only()
            .column(pool_browser::Column::PoolId)
            .distinct()
            .filter(Expr::exists(has_waiters))
            .into_tuple()
            .all(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("pool id", id));
        pools.into_iter().map(parse).collect()
    }

    /// Returns the browsers that no client has, by pool.
    pub(super) async fn pool_browsers(
        &self,
    ) -> Result<HashMap<PoolId, Vec<PoolBrowserRow>>, StoreError> {
        let rows = pool_browser::Entity::find()
            .order_by_asc(pool_browser::Column::ChangedAt)
            .all(&self.db)
            .await?;
        let mut browsers: HashMap<PoolId, Vec<PoolBrowserRow>> = HashMap::new();
        for row in rows {
            let row = PoolBrowserRow::try_from(row)?;
            browsers.entry(row.pool.clone()).or_default().push(row);
        }
        Ok(browsers)
    }
}

/// Removes the row of an idle browser, and names its session anew at its host. Returns `None` if
/// the host does not run it, or in another generation.
async fn lease(
    transaction: &DatabaseTransaction,
    idle: &PoolBrowserRow,
    new: &NewBrowserRow,
    now: DateTime<Utc>,
) -> Result<Option<HostRow>, StoreError> {
    pool_browser::Entity::delete_by_id(idle.id.as_str())
        .exec(transaction)
        .await?;
    let host = rename_session(transaction, &idle.id, &new.id, 1, now).await?;
    Ok(host.filter(|host| idle.host == Some((host.id.clone(), host.life.generation))))
}

/// Gives the session of a leased host another id. Returns the host, or `None` if none runs it.
async fn rename_session(
    transaction: &DatabaseTransaction,
    from: &BrowserId,
    to: &BrowserId,
    leases: i64,
    now: DateTime<Utc>,
) -> Result<Option<HostRow>, StoreError> {
    let lease_count = Expr::col(host::Column::LeaseCount).add(leases);
    let renamed = host::Entity::update_many()
        .col_expr(host::Column::SessionId, Expr::value(to.as_str()))
        .col_expr(host::Column::LeaseCount, lease_count)
        .col_expr(host::Column::ChangedAt, Expr::value(to_millis(now)))
        .filter(host::Column::SessionId.eq(from.as_str()))
        .filter(host::Column::State.eq(state_text(State::Leased)))
        .exec_with_returning(transaction)
        .await?;
    let row = renamed.into_iter().next();
    row.map(HostRow::try_from).transpose()
}

pub(super) fn to_column(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| corrupt("count", value))
}
