//! The table of pools.
//!
//! [`browsers`] has the browsers that no client has, of which [`available`] selects those that can
//! be leased, and [`waiters`] the clients that wait for one. [`overview`] is what the task that
//! fills pools looks at, [`profiles`] the profile that browsers of a pool start with.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait,
    IntoActiveModel, QueryFilter, QueryOrder, QuerySelect, Select, SqliteTransactionMode,
    TransactionOptions, TransactionTrait, sea_query::Expr,
};

use super::{
    Store, StoreError, browsers as leased, corrupt,
    entity::{browser, pool, pool_waiter},
    from_millis,
    limits::{session_limit, sessions_in_use},
    projects::lock_active_project,
    search::contains,
    to_millis,
};
use crate::{
    api::ids::{BrowserId, PoolId, ProjectId},
    control::pools::config::PoolConfig,
};

mod available;
mod browsers;
mod counts;
mod overview;
mod profiles;
mod room;
#[cfg(test)]
mod tests;
mod waiters;

pub(super) use available::is_pooled;
pub use browsers::{
    Claim, LeasedBrowser, PoolBrowserRow, PoolBrowserStart, PoolBrowserState, PoolLeaseError,
};
pub use counts::PoolCounts;
pub(super) use counts::{count, sizes};
pub use overview::{PoolHost, PoolSummary, PoolsOverview};
pub use profiles::PoolProfile;
pub(super) use profiles::pool_with_profile;
pub use waiters::WaiterTicket;

/// A row of the table of pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRow {
    pub id: PoolId,
    pub project_id: ProjectId,
    pub settings: PoolSettings,
    /// The profile of the configuration.
    pub profile: Option<PoolProfile>,
    /// Identifies the configuration, as the program that stored it has computed it.
    pub config_hash: String,
    /// Grows with each flush.
    pub flush_count: u64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The settings of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    pub name: Option<String>,
    /// The number of browsers, leased ones included.
    pub size: u32,
    /// The percentage of the size that may be added per minute.
    pub fill_rate_per_minute: u32,
    /// The idle timeout of leased browsers.
    pub timeout_seconds: u32,
    /// The age at which a host is replaced.
    pub max_age_seconds: Option<u32>,
    /// The number of leases after which a host is replaced.
    pub max_leases: Option<u32>,
    /// Whether idle browsers are replaced when the profile gets a new version.
    pub refresh_on_profile_update: bool,
    pub config: PoolConfig,
}

/// A page of the list of pools, with its filters.
#[derive(Debug, Clone, Default)]
pub struct PoolListing {
    pub name: Option<String>,
    /// Searched in the id and the name, ignoring case.
    pub query: Option<String>,
    pub offset: u64,
    pub limit: u64,
}

/// Why a pool was not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum SavePoolError {
    #[error("no pool with that id or name")]
    NotFound,
    #[error("the project is archived or deleted")]
    ProjectInactive,
    #[error("the browser limit of the project is reached ({0})")]
    LimitReached(u32),
    #[error("the profile does not exist")]
    ProfileNotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The result of deleting a pool. Except for `Deleted`, nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum DeletePoolOutcome {
    /// Has the browsers that clients have leased from it.
    Deleted(Vec<BrowserId>),
    NotFound,
    /// Clients have so many browsers of the pool.
    Leased(u64),
}

impl TryFrom<pool::Model> for PoolRow {
    type Error = StoreError;

    fn try_from(row: pool::Model) -> Result<Self, StoreError> {
        let number = |value: i64| u32::try_from(value).map_err(|_| corrupt("pool", value));
        let config = serde_json::from_str(&row.config);
        let config: PoolConfig = config.map_err(|_| corrupt("pool configuration", &row.id))?;
        Ok(PoolRow {
            profile: config.profile.clone().map(PoolProfile::unnamed),
            settings: PoolSettings {
                name: row.name,
                size: number(row.size.into())?,
                fill_rate_per_minute: number(row.fill_rate_per_minute.into())?,
                timeout_seconds: number(row.timeout_seconds)?,
                max_age_seconds: row.max_age_seconds.map(number).transpose()?,
                max_leases: row.max_leases.map(number).transpose()?,
                refresh_on_profile_update: row.refresh_on_profile_update,
                config,
            },
            config_hash: row.config_hash,
            flush_count: u64::try_from(row.flush_count)
                .map_err(|_| corrupt("flush count", row.flush_count))?,
            id: row.id.parse().map_err(|_| corrupt("pool id", &row.id))?,
            project_id: row
                .project_id
                .parse()
                .map_err(|_| corrupt("project id", &row.project_id))?,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
        })
    }
}

fn to_model(row: &PoolRow) -> Result<pool::Model, StoreError> {
    let settings = &row.settings;
    let number = |value: u32| i32::try_from(value).map_err(|_| corrupt("pool", value));
    let config = serde_json::to_string(&settings.config);
    Ok(pool::Model {
        id: row.id.to_string(),
        project_id: row.project_id.to_string(),
        name: settings.name.clone(),
        size: number(settings.size)?,
        fill_rate_per_minute: number(settings.fill_rate_per_minute)?,
        timeout_seconds: settings.timeout_seconds.into(),
        max_age_seconds: settings.max_age_seconds.map(Into::into),
        max_leases: settings.max_leases.map(Into::into),
        config: config.map_err(|error| corrupt("pool configuration", error))?,
        config_hash: row.config_hash.clone(),
        profile_id: settings.config.profile.as_ref().map(ToString::to_string),
        refresh_on_profile_update: settings.refresh_on_profile_update,
        flush_count: i64::try_from(row.flush_count)
            .map_err(|_| corrupt("flush count", row.flush_count))?,
        created_at: to_millis(row.created_at),
        updated_at: to_millis(row.updated_at),
    })
}

impl Store {
    /// Creates a pool in an active project that has room for its browsers. Its name must be unique
    /// among the pools of the project.
    pub async fn create_pool(
        &self,
        project: &ProjectId,
        settings: PoolSettings,
        now: DateTime<Utc>,
    ) -> Result<PoolRow, SavePoolError> {
        let mut row = PoolRow {
            id: PoolId::generate(),
            project_id: project.clone(),
            profile: None,
            config_hash: settings.config.hash(),
            flush_count: 0,
            settings,
            created_at: now,
            updated_at: now,
        };
        let transaction = self.begin_write().await?;
        // Until the commit, the project is neither archived nor deleted, and gets no other browser.
        let active = lock_active_project(&transaction, project).await?;
        let active = active.ok_or(SavePoolError::ProjectInactive)?;
        profiles::lock_profile_of(&transaction, &mut row).await?;
        let insert = to_model(&row)?.into_active_model().reset_all();
        pool::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await
            .map_err(StoreError::from)?;
        check_limit(&transaction, &active).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(row)
    }

    /// Finds a pool of `project` by its id.
    pub async fn find_pool(
        &self,
        project: &ProjectId,
        id: &PoolId,
    ) -> Result<Option<PoolRow>, StoreError> {
        let row = of_project(project)
            .filter(pool::Column::Id.eq(id.as_str()))
            .one(&self.db)
            .await?;
        self.with_profile(row).await
    }

    /// Finds a pool of `project` by its name.
    pub async fn find_pool_named(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<PoolRow>, StoreError> {
        let row = of_project(project)
            .filter(pool::Column::Name.eq(name))
            .one(&self.db)
            .await?;
        self.with_profile(row).await
    }

    /// Finds a pool of any project.
    pub async fn find_any_pool(&self, id: &PoolId) -> Result<Option<PoolRow>, StoreError> {
        let row = pool::Entity::find_by_id(id.as_str()).one(&self.db).await?;
        self.with_profile(row).await
    }

    /// Lists pools, newest first, with one row more than the limit if there are more.
    pub async fn list_pools(
        &self,
        project: &ProjectId,
        listing: &PoolListing,
    ) -> Result<Vec<PoolRow>, StoreError> {
        let mut query = of_project(project);
        if let Some(name) = &listing.name {
            query = query.filter(pool::Column::Name.eq(name));
        }
        if let Some(text) = &listing.query {
            let columns = [pool::Column::Id, pool::Column::Name];
            query = query.filter(contains(text, &columns));
        }
        let rows = in_order(query)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        let rows: Result<Vec<PoolRow>, StoreError> =
            rows.into_iter().map(PoolRow::try_from).collect();
        let mut rows = rows?;
        profiles::add_names(&self.db, &mut rows).await?;
        Ok(rows)
    }

    /// Changes the settings of a pool with `change`.
    pub async fn change_pool(
        &self,
        id: &PoolId,
        change: impl FnOnce(&mut PoolSettings),
        now: DateTime<Utc>,
    ) -> Result<PoolRow, SavePoolError> {
        let transaction = self.begin_write().await?;
        let before = lock_pool(&transaction, id).await?;
        let before = before.ok_or(SavePoolError::NotFound)?;
        let mut row = before.clone();
        change(&mut row.settings);
        row.updated_at = now;
        row.profile = row
            .settings
            .config
            .profile
            .clone()
            .map(PoolProfile::unnamed);
        // Before the profile, as when a pool or a browser is created.
        let grows = row.settings.size > before.settings.size;
        let active = match grows {
            true => {
                let active = lock_active_project(&transaction, &row.project_id).await?;
                Some(active.ok_or(SavePoolError::ProjectInactive)?)
            }
            false => None,
        };
        if row.profile != before.profile {
            profiles::lock_profile_of(&transaction, &mut row).await?;
        } else {
            profiles::add_names(&transaction, std::slice::from_mut(&mut row)).await?;
        }
        if row.settings.config != before.settings.config {
            row.config_hash = row.settings.config.hash();
        }
        let update = to_model(&row)?.into_active_model().reset_all();
        let updated = pool::Entity::update(update).exec(&transaction).await;
        updated.map_err(StoreError::from)?;
        if row.settings.name != before.settings.name {
            rename_in_browsers(&transaction, &row).await?;
        }
        if let Some(active) = active {
            check_limit(&transaction, &active).await?;
        }
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(row)
    }

    /// Deletes a pool. Its idle browsers are discarded by the task that fills pools. Leased ones
    /// prevent that, unless `force` is set.
    pub async fn delete_pool(
        &self,
        id: &PoolId,
        force: bool,
    ) -> Result<DeletePoolOutcome, StoreError> {
        let transaction = self.begin_write().await?;
        // Until the commit, no browser is leased from it.
        if lock_pool(&transaction, id).await?.is_none() {
            return Ok(DeletePoolOutcome::NotFound);
        }
        let leased: Vec<String> = browser::Entity::find()
            .select_only()
            .column(browser::Column::Id)
            .filter(browser::Column::PoolId.eq(id.as_str()))
            .filter(leased::is_live())
            .into_tuple()
            .all(&transaction)
            .await?;
        if !force && !leased.is_empty() {
            return Ok(DeletePoolOutcome::Leased(leased.len() as u64));
        }
        pool::Entity::delete_by_id(id.as_str())
            .exec(&transaction)
            .await?;
        pool_waiter::Entity::delete_many()
            .filter(pool_waiter::Column::PoolId.eq(id.as_str()))
            .exec(&transaction)
            .await?;
        transaction.commit().await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("browser id", id));
        let leased: Result<_, StoreError> = leased.into_iter().map(parse).collect();
        Ok(DeletePoolOutcome::Deleted(leased?))
    }

    /// Begins a transaction that writes. On SQLite one that begins with a read fails if another
    /// process, such as an administration command, writes before it does.
    async fn begin_write(&self) -> Result<DatabaseTransaction, StoreError> {
        let options = TransactionOptions {
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        Ok(self.writer.begin_with_options(options).await?)
    }
}

fn of_project(project: &ProjectId) -> Select<pool::Entity> {
    pool::Entity::find().filter(pool::Column::ProjectId.eq(project.as_str()))
}

/// Puts a list of pools in order, newest first.
fn in_order(query: Select<pool::Entity>) -> Select<pool::Entity> {
    query.order_by_desc(pool::Column::Id)
}

/// Fails if the project, which is locked, has more browsers than its limit.
async fn check_limit(
    transaction: &DatabaseTransaction,
    project: &super::entity::project::Model,
) -> Result<(), SavePoolError> {
    let Some(limit) = session_limit(transaction, project).await? else {
        return Ok(());
    };
    let id = project.id.parse();
    let id: ProjectId = id.map_err(|_| corrupt("project id", &project.id))?;
    match sessions_in_use(transaction, &id).await? > limit.into() {
        true => Err(SavePoolError::LimitReached(limit)),
        false => Ok(()),
    }
}

/// Locks a pool until the end of the transaction, so that no browser is leased from it.
async fn lock_pool(
    transaction: &DatabaseTransaction,
    id: &PoolId,
) -> Result<Option<PoolRow>, StoreError> {
    pool::Entity::update_many()
        .col_expr(pool::Column::UpdatedAt, Expr::col(pool::Column::UpdatedAt))
        .filter(pool::Column::Id.eq(id.as_str()))
        .exec(transaction)
        .await?;
    let row = pool::Entity::find_by_id(id.as_str()).one(transaction);
    row.await?.map(PoolRow::try_from).transpose()
}

/// Renames a pool in its browsers.
async fn rename_in_browsers(db: &impl ConnectionTrait, pool: &PoolRow) -> Result<(), StoreError> {
    browser::Entity::update_many()
        .col_expr(
            browser::Column::PoolName,
            Expr::value(pool.settings.name.clone()),
        )
        .filter(browser::Column::PoolId.eq(pool.id.as_str()))
        .exec(db)
        .await?;
    Ok(())
}
