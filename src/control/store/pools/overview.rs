//! An overview of all pools for the task that fills them.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use sea_orm::{
    ColumnTrait, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, RelationDef,
};

use super::{PoolBrowserRow, profiles::to_version};
use crate::{
    api::{
        ids::{BrowserId, HostId, PoolId},
        viewport::Viewport,
    },
    control::{
        hosts::state::State,
        pools::config::PoolConfig,
        store::{
            HostMode, Store, StoreError, corrupt,
            entity::{host, pool, pool_waiter, profile, project},
            from_millis,
            hosts::life_of,
            hosts::state_text,
            projects::ACTIVE,
        },
    },
};

/// The pools with their hosts and the browsers that no client has.
#[derive(Debug, Default)]
pub struct PoolsOverview {
    pub pools: Vec<PoolSummary>,
    /// The hosts that are reserved for pools, by pool. Also of pools that are deleted.
    pub hosts: HashMap<PoolId, Vec<PoolHost>>,
    /// The browsers that no client has, by pool. Also of pools that are deleted.
    pub browsers: HashMap<PoolId, Vec<PoolBrowserRow>>,
    /// The pools that clients wait for.
    pub waited_for: HashSet<PoolId>,
}

/// The part of a pool that determines its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSummary {
    pub id: PoolId,
    /// The number of browsers. 0 if the project is not active.
    pub size: u32,
    pub fill_rate_per_minute: u32,
    pub max_age_seconds: Option<u32>,
    pub max_leases: Option<u32>,
    pub mode: HostMode,
    pub viewport: Viewport,
    pub config_hash: String,
    pub flush_count: u64,
    /// The version of the profile that a browser must have. `None` if any one will do.
    pub profile_version: Option<u64>,
}

impl PoolSummary {
    /// Returns whether a browser may be leased, as far as its start decides that.
    #[must_use]
    pub fn is_current(&self, browser: &PoolBrowserRow) -> bool {
        let start = &browser.start;
        start.config_hash == self.config_hash
            && start.flush_count == self.flush_count
            && self
                .profile_version
                .is_none_or(|version| version == start.profile_version)
    }
}

/// A host that is reserved for a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHost {
    pub id: HostId,
    pub state: State,
    pub session: Option<BrowserId>,
    pub mode: HostMode,
    /// The width and the height of the largest viewport. `None` for the largest that there is.
    pub max_viewport: (Option<u32>, Option<u32>),
    pub is_draining: bool,
    /// Whether the agent takes no session until it has started again.
    pub is_restarting: bool,
    pub created_at: DateTime<Utc>,
    /// When the life last changed.
    pub changed_at: DateTime<Utc>,
    pub lease_count: u64,
}

/// The columns of a pool that [`PoolSummary`] has, the status of its project, and the version of
/// its profile.
type SummaryColumns = (
    String,
    i32,
    i32,
    Option<i64>,
    Option<i64>,
    String,
    String,
    i64,
    bool,
    Option<String>,
    Option<i64>,
);

impl PoolsOverview {
    /// Returns whether there is nothing to do, nor will be before there is a pool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.hosts.is_empty()
            && self.browsers.is_empty()
            && self.waited_for.is_empty()
    }
}

impl Store {
    /// Returns whether there is a pool, of any project.
    pub async fn has_pools(&self) -> Result<bool, StoreError> {
        let found: Option<String> = pool::Entity::find()
            .select_only()
            .column(pool::Column::Id)
            .limit(1)
            .into_tuple()
            .one(&self.db)
            .await?;
        Ok(found.is_some())
    }

    /// Returns all pools with their hosts, the browsers that no client has, and whether clients
    /// wait.
    pub async fn pools_overview(&self) -> Result<PoolsOverview, StoreError> {
        // Before the hosts: a browser that is leased in between is not taken for a missing one.
        let browsers = self.pool_browsers().await?;
        Ok(PoolsOverview {
            browsers,
            hosts: self.hosts_of_pools().await?,
            pools: self.pool_summaries().await?,
            waited_for: self.pools_waited_for().await?,
        })
    }

    async fn pool_summaries(&self) -> Result<Vec<PoolSummary>, StoreError> {
        let to_project: RelationDef = pool::Entity::belongs_to(project::Entity)
            .from(pool::Column::ProjectId)
            .to(project::Column::Id)
            .into();
        let to_profile: RelationDef = pool::Entity::belongs_to(profile::Entity)
            .from(pool::Column::ProfileId)
            .to(profile::Column::Id)
            .into();
        let rows: Vec<SummaryColumns> = pool::Entity::find()
            .select_only()
            .column(pool::Column::Id)
            .column(pool::Column::Size)
            .column(pool::Column::FillRatePerMinute)
            .column(pool::Column::MaxAgeSeconds)
            .column(pool::Column::MaxLeases)
            .column(pool::Column::Config)
            .column(pool::Column::ConfigHash)
            .column(pool::Column::FlushCount)
            .column(pool::Column::RefreshOnProfileUpdate)
            .column(project::Column::Status)
            .column(profile::Column::Version)
            .join(JoinType::LeftJoin, to_project)
            .join(JoinType::LeftJoin, to_profile)
            .order_by_asc(pool::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?;
        rows.into_iter().map(to_summary).collect()
    }

    async fn hosts_of_pools(&self) -> Result<HashMap<PoolId, Vec<PoolHost>>, StoreError> {
        let gone = [State::Gone, State::Retiring].map(state_text);
        let rows = host::Entity::find()
            .filter(host::Column::PoolId.is_not_null())
            .filter(host::Column::State.is_not_in(gone))
            .order_by_asc(host::Column::Id)
            .all(&self.db)
            .await?;
        let mut hosts: HashMap<PoolId, Vec<PoolHost>> = HashMap::new();
        for row in rows {
            let pool = row.pool_id.clone().unwrap_or_default();
            let pool = pool.parse().map_err(|_| corrupt("pool id", pool))?;
            let life = life_of(&row)?;
            let side = |max: i32| u32::try_from(max).map_err(|_| corrupt("viewport", max));
            hosts.entry(pool).or_default().push(PoolHost {
                state: life.state,
                session: life.session,
                mode: HostMode {
                    headless: row.headless,
                    kiosk_mode: row.kiosk_mode,
                },
                max_viewport: (
                    row.max_width.map(side).transpose()?,
                    row.max_height.map(side).transpose()?,
                ),
                is_draining: life.is_draining,
                is_restarting: life.is_restarting,
                created_at: from_millis(row.created_at)?,
                changed_at: from_millis(row.changed_at)?,
                lease_count: u64::try_from(row.lease_count).unwrap_or_default(),
                id: row.id.parse().map_err(|_| corrupt("host id", &row.id))?,
            });
        }
        Ok(hosts)
    }

    async fn pools_waited_for(&self) -> Result<HashSet<PoolId>, StoreError> {
        let ids: Vec<String> = pool_waiter::Entity::find()
            .select_only()
            .column(pool_waiter::Column::PoolId)
            .distinct()
            .into_tuple()
            .all(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("pool id", id));
        ids.into_iter().map(parse).collect()
    }
}

fn to_summary(row: SummaryColumns) -> Result<PoolSummary, StoreError> {
    let (
        id,
        size,
        fill_rate,
        max_age,
        max_leases,
        config,
        config_hash,
        flushes,
        refreshes,
        status,
        profile_version,
    ) = row;
    let config: PoolConfig =
        serde_json::from_str(&config).map_err(|_| corrupt("pool configuration", &id))?;
    let number = |value: i64| u32::try_from(value).map_err(|_| corrupt("pool", value));
    let is_active = status.as_deref() == Some(ACTIVE);
    Ok(PoolSummary {
        size: match is_active {
            true => number(size.into())?,
            false => 0,
        },
        fill_rate_per_minute: number(fill_rate.into())?,
        max_age_seconds: max_age.map(number).transpose()?,
        max_leases: max_leases.map(number).transpose()?,
        mode: config.mode(),
        viewport: config.viewport,
        config_hash,
        flush_count: u64::try_from(flushes).map_err(|_| corrupt("flush count", flushes))?,
        profile_version: match refreshes {
            true => profile_version.map(to_version).transpose()?,
            false => None,
        },
        id: id.parse().map_err(|_| corrupt("pool id", id))?,
    })
}
