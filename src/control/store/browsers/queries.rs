//! Reads the rows of browsers.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityTrait, ExprTrait, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait, sea_query::Expr,
};

use super::{
    ACTIVE, ActiveBrowser, BrowserRow, CREATING, DELETED, DELETING, Listing, StateFilter,
    UnfinishedBrowser, to_browser_row,
};
use crate::{
    api::ids::{BrowserId, HostId, ProjectId},
    control::store::{
        ControlProcessId, Store, StoreError, corrupt,
        entity::{browser, browser_tag},
        from_millis,
        hosts::to_generation_column,
        profiles::profile_names,
        search::contains,
        to_millis,
    },
};

impl Store {
    /// Returns the browsers that are being created or ended.
    pub async fn unfinished_browsers(&self) -> Result<Vec<UnfinishedBrowser>, StoreError> {
        let rows = browser::Entity::find()
            .filter(browser::Column::State.is_in([CREATING, DELETING]))
            .all(&self.db)
            .await?;
        let saving = match rows.is_empty() {
            true => HashSet::new(),
            false => self.browsers_with_write_lock().await?,
        };
        let rows = rows.into_iter().map(|row| {
            Ok(UnfinishedBrowser {
                is_creating: row.state == CREATING,
                process: row.process_id.map(ControlProcessId),
                saves_profile: saving.contains(&row.id),
                since: from_millis(row.deleted_at.unwrap_or(row.created_at))?,
                id: row.id.parse().map_err(|_| corrupt("browser id", &row.id))?,
            })
        });
        rows.collect()
    }

    /// Returns whether this process is ending a browser, according to its row.
    pub async fn is_withdrawn_here(&self, id: &BrowserId) -> Result<bool, StoreError> {
        let Some(process) = self.process_column() else {
            return Ok(false);
        };
        let found = browser::Entity::find_by_id(id.to_string())
            .filter(browser::Column::State.eq(DELETING))
            .filter(browser::Column::ProcessId.eq(process))
            .count(&self.db);
        Ok(found.await? > 0)
    }

    /// Returns the ids of the active browsers of all projects, or of one.
    pub async fn active_browser_ids(
        &self,
        project: Option<&ProjectId>,
    ) -> Result<Vec<BrowserId>, StoreError> {
        let mut query = browser::Entity::find()
            .select_only()
            .column(browser::Column::Id)
            .filter(is_active());
        if let Some(project) = project {
            query = query.filter(browser::Column::ProjectId.eq(project.as_str()));
        }
        let ids: Vec<String> = query.into_tuple().all(&self.db).await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("browser id", id));
        ids.into_iter().map(parse).collect()
    }

    /// Finds an active browser with its host. Its tags are not read.
    pub async fn find_active_browser(
        &self,
        id: &BrowserId,
    ) -> Result<Option<ActiveBrowser>, StoreError> {
        let row = browser::Entity::find_by_id(id.to_string())
            .filter(is_active())
            .one(&self.db)
            .await?;
        row.map(to_active).transpose()
    }

    /// Finds a browser that is ending with its host. Its tags are not read.
    pub async fn find_ending_browser(
        &self,
        id: &BrowserId,
    ) -> Result<Option<ActiveBrowser>, StoreError> {
        let row = browser::Entity::find_by_id(id.to_string())
            .filter(browser::Column::State.eq(DELETING))
            .one(&self.db)
            .await?;
        row.map(to_active).transpose()
    }

    /// Returns the browser that has, or had, this generation of a host, with its project.
    pub async fn browser_on(
        &self,
        host: &HostId,
        generation: u64,
    ) -> Result<Option<(ProjectId, BrowserId)>, StoreError> {
        let found = browser::Entity::find()
            .filter(browser::Column::HostId.eq(host.as_str()))
            .filter(browser::Column::HostGeneration.eq(to_generation_column(generation)?))
            .one(&self.db)
            .await?;
        let ids = found.map(|row| {
            let project = row.project_id.parse();
            let browser = row.id.parse();
            Ok((
                project.map_err(|_| corrupt("project id", &row.project_id))?,
                browser.map_err(|_| corrupt("browser id", &row.id))?,
            ))
        });
        ids.transpose()
    }

    /// Finds a published browser of `project` by its id.
    pub async fn find_browser(
        &self,
        project: &ProjectId,
        id: &BrowserId,
        state: StateFilter,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let row = browser::Entity::find_by_id(id.to_string())
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(state_condition(state))
            .one(&self.db)
            .await?;
        self.with_tags(row).await
    }

    /// Finds a published browser of `project` by its name: the live one, otherwise the latest that
    /// had the name.
    pub async fn find_browser_named(
        &self,
        project: &ProjectId,
        name: &str,
        state: StateFilter,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let row = browser::Entity::find()
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(browser::Column::Name.eq(name))
            .filter(state_condition(state))
            .order_by_desc(Expr::col(browser::Column::LiveName).is_not_null())
            .order_by_desc(browser::Column::Id)
            .one(&self.db)
            .await?;
        self.with_tags(row).await
    }

    /// Finds the live browser with that name, published or not.
    pub async fn find_live_name(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<BrowserId>, StoreError> {
        browser::Entity::find()
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(browser::Column::LiveName.eq(name))
            .one(&self.db)
            .await?
            .map(|row| row.id.parse().map_err(|_| corrupt("browser id", &row.id)))
            .transpose()
    }

    /// Finds the browser that was created with the idempotency key `key` after `since`, and the
    /// digest of the request. Frees a key that was used before `since`.
    pub async fn find_creation(
        &self,
        project: &ProjectId,
        key: &str,
        since: DateTime<Utc>,
    ) -> Result<Option<(BrowserRow, Vec<u8>)>, StoreError> {
        browser::Entity::update_many()
            .col_expr(browser::Column::IdempotencyKey, Expr::value(None::<String>))
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(browser::Column::IdempotencyKey.eq(key))
            .filter(browser::Column::CreatedAt.lt(to_millis(since)))
            .exec(&self.writer)
            .await?;
        let row = browser::Entity::find()
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(browser::Column::IdempotencyKey.eq(key))
            .filter(state_condition(StateFilter::All))
            .one(&self.db)
            .await?;
        let digest = row.as_ref().and_then(|row| row.request_digest.clone());
        Ok(self.with_tags(row).await?.zip(digest))
    }

    /// Frees the idempotency key of a browser, so that a repeated request gets another one.
    pub async fn forget_creation(&self, id: &BrowserId) -> Result<(), StoreError> {
        browser::Entity::update_many()
            .col_expr(browser::Column::IdempotencyKey, Expr::value(None::<String>))
            .filter(browser::Column::Id.eq(id.as_str()))
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Lists browsers, newest first, with one row more than `limit` if there are more.
    pub async fn list_browsers(
        &self,
        project: &ProjectId,
        listing: &Listing,
    ) -> Result<Vec<BrowserRow>, StoreError> {
        let mut query = browser::Entity::find()
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(state_condition(listing.state));
        if let Some(text) = &listing.query {
            let columns = [browser::Column::Id, browser::Column::Name];
            query = query.filter(contains(text, &columns));
        }
        for (key, value) in &listing.tags {
            let tagged = browser_tag::Entity::find()
                .select_only()
                .column(browser_tag::Column::BrowserId)
                .filter(browser_tag::Column::Key.eq(key))
                .filter(browser_tag::Column::Value.eq(value))
                .into_query();
            query = query.filter(browser::Column::Id.in_subquery(tagged));
        }
        let rows = query
            .order_by_desc(browser::Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        let mut tags = self
            .tags_of(rows.iter().map(|row| row.id.clone()).collect())
            .await?;
        let mut rows = rows
            .into_iter()
            .map(|row| {
                let tags = tags.remove(&row.id).unwrap_or_default();
                to_browser_row(row, tags)
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.add_profile_names(&mut rows).await?;
        Ok(rows)
    }

    /// Adds the tags and the name of the profile to a row.
    pub(super) async fn with_tags(
        &self,
        row: Option<browser::Model>,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let mut tags = self.tags_of(vec![row.id.clone()]).await?;
        let tags = tags.remove(&row.id).unwrap_or_default();
        let mut row = [to_browser_row(row, tags)?];
        self.add_profile_names(&mut row).await?;
        let [row] = row;
        Ok(Some(row))
    }

    /// Adds the names of the profiles to rows.
    async fn add_profile_names(&self, rows: &mut [BrowserRow]) -> Result<(), StoreError> {
        let profiles = rows.iter().filter_map(|row| row.profile.as_ref());
        let names = profile_names(&self.db, profiles.map(|profile| &profile.id)).await?;
        for profile in rows.iter_mut().filter_map(|row| row.profile.as_mut()) {
            profile.name = names.get(profile.id.as_str()).cloned().flatten();
        }
        Ok(())
    }

    async fn tags_of(
        &self,
        ids: Vec<String>,
    ) -> Result<HashMap<String, BTreeMap<String, String>>, StoreError> {
        let mut all: HashMap<String, BTreeMap<String, String>> = HashMap::new();
        if ids.is_empty() {
            return Ok(all);
        }
        let rows = browser_tag::Entity::find()
            .filter(browser_tag::Column::BrowserId.is_in(ids))
            .all(&self.db)
            .await?;
        for row in rows {
            all.entry(row.browser_id)
                .or_default()
                .insert(row.key, row.value);
        }
        Ok(all)
    }
}

fn to_active(row: browser::Model) -> Result<ActiveBrowser, StoreError> {
    let host = row.host_id.as_ref().zip(row.host_generation);
    let host = host.map(|(id, generation)| -> Result<_, StoreError> {
        let generation = u64::try_from(generation);
        Ok((
            id.parse().map_err(|_| corrupt("host id", id))?,
            generation.map_err(|_| corrupt("generation", &row.id))?,
        ))
    });
    Ok(ActiveBrowser {
        host: host.transpose()?,
        used_at: from_millis(row.used_at.unwrap_or(row.created_at))?,
        row: to_browser_row(row, BTreeMap::new())?,
    })
}

/// Returns the number of browsers of a project that start or are active.
pub(in crate::control::store) async fn count_live(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<u64, StoreError> {
    let live = browser::Entity::find()
        .filter(browser::Column::ProjectId.eq(project.as_str()))
        .filter(is_live());
    Ok(live.count(db).await?)
}

/// Returns the number of browsers of a project that start or are active, by the pool that they were
/// leased from.
pub(in crate::control::store) async fn count_live_by_pool(
    db: &impl ConnectionTrait,
    project: &ProjectId,
) -> Result<HashMap<Option<String>, u64>, StoreError> {
    let counts: Vec<(Option<String>, i64)> = browser::Entity::find()
        .select_only()
        .column(browser::Column::PoolId)
        .column_as(browser::Column::Id.count(), "count")
        .filter(browser::Column::ProjectId.eq(project.as_str()))
        .filter(is_live())
        .group_by(browser::Column::PoolId)
        .into_tuple()
        .all(db)
        .await?;
    let counts = counts.into_iter();
    Ok(counts
        .map(|(pool, count)| (pool, count.unsigned_abs()))
        .collect())
}

/// Returns the condition that a browser is active.
pub(in crate::control::store) fn is_active() -> Expr {
    browser::Column::State.eq(ACTIVE)
}

/// Returns the condition that a browser starts, is active or ends.
pub(in crate::control::store) fn has_not_ended() -> Expr {
    browser::Column::State.is_in([CREATING, ACTIVE, DELETING])
}

/// Returns the condition that a browser starts or is active.
pub(in crate::control::store) fn is_live() -> Expr {
    browser::Column::State.is_in([CREATING, ACTIVE])
}

fn state_condition(filter: StateFilter) -> Condition {
    let state = browser::Column::State;
    match filter {
        StateFilter::Active => Condition::all().add(state.eq(ACTIVE)),
        StateFilter::Deleted => Condition::all().add(state.is_in([DELETING, DELETED])),
        StateFilter::All => Condition::all().add(state.is_in([ACTIVE, DELETING, DELETED])),
    }
}
