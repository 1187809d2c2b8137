//! Inserts, updates and deletes the rows of browsers.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, Condition, ConnectionTrait,
    DatabaseTransaction, DbErr, EntityTrait, QueryFilter, TransactionTrait, UpdateMany,
    sea_query::Expr,
};

use super::{
    ACTIVE, BrowserProfileRow, BrowserRow, CREATING, Change, CreateBrowserError, DELETED, DELETING,
    NewBrowserRow, end_reason_text, is_active, to_browser_row,
};
use crate::{
    api::ids::{BrowserId, HostId},
    control::{
        browsers::state::EndReason,
        store::{
            ControlProcessId, Hint, Store, StoreError, corrupt,
            entity::{browser, browser_tag},
            hosts::to_generation_column,
            limits::{session_limit, sessions_in_use},
            profiles::{
                delete_write_lock, is_being_saved, lock_profile, set_write_lock, write_lock,
            },
            projects::lock_active_project,
            to_millis,
            webhooks::events::{RecordedEvents, record_browser_created, record_browser_ended},
        },
    },
};

/// The most browsers whose use one statement records.
const USE_BATCH: usize = 500;

impl Store {
    /// Inserts the row of a browser that is about to start, if its project is active and has not
    /// reached its limit.
    ///
    /// The name must be unique among the live browsers of the project, and the idempotency key
    /// among all browsers of the project, ended ones included.
    pub async fn create_browser(
        &self,
        new: NewBrowserRow,
        now: DateTime<Utc>,
    ) -> Result<BrowserRow, CreateBrowserError> {
        let (project_id, tags) = (new.project_id.clone(), new.tags.clone());
        let profile = new.profile.clone();
        let row = self.new_browser_model(new, now)?;
        let transaction = self.writer.begin().await.map_err(StoreError::from)?;
        // Until the commit, the project is neither archived nor deleted, and gets no other browser.
        let project = lock_active_project(&transaction, &project_id).await?;
        let project = project.ok_or(CreateBrowserError::ProjectInactive)?;
        if let Some(limit) = session_limit(&transaction, &project).await?
            && sessions_in_use(&transaction, &project_id).await? >= limit.into()
        {
            return Err(CreateBrowserError::LimitReached(limit));
        }
        if let Some(profile) = &profile {
            reserve_profile(&transaction, &row, profile).await?;
        }
        insert_browser(&transaction, &row, &tags).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        Ok(BrowserRow {
            profile,
            ..to_browser_row(row, tags)?
        })
    }

    /// Returns the row of a browser that is about to start.
    pub(in crate::control::store) fn new_browser_model(
        &self,
        new: NewBrowserRow,
        now: DateTime<Utc>,
    ) -> Result<browser::Model, StoreError> {
        let (pool_id, pool_name) = match new.pool {
            Some(pool) => (Some(pool.id.into()), pool.name),
            None => (None, None),
        };
        let profile = new.profile.as_ref();
        Ok(browser::Model {
            profile_id: profile.map(|profile| profile.id.to_string()),
            save_changes: profile.is_some_and(|profile| profile.save_changes),
            id: new.id.into(),
            project_id: new.project_id.into(),
            name: new.name.clone(),
            live_name: new.name,
            state: CREATING.to_owned(),
            end_reason: None,
            headless: new.headless,
            kiosk_mode: new.kiosk_mode,
            timeout_seconds: new.timeout_seconds.into(),
            viewport_width: to_column(new.viewport.width)?,
            viewport_height: to_column(new.viewport.height)?,
            refresh_rate: to_column(new.viewport.refresh_rate)?,
            start_url: new.start_url,
            idempotency_key: new.idempotency.as_ref().map(|c| c.key.clone()),
            request_digest: new.idempotency.map(|c| c.request_digest.to_vec()),
            created_at: to_millis(now),
            deleted_at: None,
            host_id: None,
            host_generation: None,
            used_at: None,
            process_id: self.process_column(),
            pool_id,
            pool_name,
        })
    }

    /// Marks a browser as active on this generation of a host. Returns false if it is not being
    /// created.
    pub async fn publish_browser(
        &self,
        id: &BrowserId,
        host: &HostId,
        generation: u64,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let generation = to_generation_column(generation)?;
        let transaction = self.writer.begin().await?;
        let changed = browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(ACTIVE))
            .col_expr(browser::Column::HostId, Expr::value(host.as_str()))
            .col_expr(browser::Column::HostGeneration, Expr::value(generation))
            .col_expr(browser::Column::UsedAt, Expr::value(to_millis(now)))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(CREATING))
            .exec(&transaction)
            .await?;
        if changed.rows_affected == 0 {
            return Ok(false);
        }
        let events = record_browser_created(&transaction, id).await?;
        self.commit_with_events(transaction, events).await?;
        Ok(true)
    }

    /// Records that browsers were in use at `now`, unless a later use is recorded.
    pub async fn record_browser_use(
        &self,
        ids: &[BrowserId],
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let is_earlier = Condition::any()
            .add(browser::Column::UsedAt.is_null())
            .add(browser::Column::UsedAt.lt(to_millis(now)));
        for ids in ids.chunks(USE_BATCH) {
            browser::Entity::update_many()
                .col_expr(browser::Column::UsedAt, Expr::value(to_millis(now)))
                .filter(browser::Column::Id.is_in(ids.iter().map(BrowserId::as_str)))
                .filter(is_earlier.clone())
                .exec(&self.writer)
                .await?;
        }
        Ok(())
    }

    /// Marks an active browser as ending and frees its name. Returns false if it is not active.
    pub async fn withdraw_browser(
        &self,
        id: &BrowserId,
        reason: EndReason,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        self.withdraw(self.withdrawing(id, reason, now), id).await
    }

    /// Does the same as [`Self::withdraw_browser`], unless the browser was used after
    /// `unused_since`.
    pub async fn withdraw_unused_browser(
        &self,
        id: &BrowserId,
        unused_since: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let used_at = Condition::any()
            .add(browser::Column::UsedAt.is_null())
            .add(browser::Column::UsedAt.lte(to_millis(unused_since)));
        let withdrawing = self.withdrawing(id, EndReason::Idle, now).filter(used_at);
        self.withdraw(withdrawing, id).await
    }

    fn withdrawing(
        &self,
        id: &BrowserId,
        reason: EndReason,
        now: DateTime<Utc>,
    ) -> UpdateMany<browser::Entity> {
        browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(DELETING))
            .col_expr(
                browser::Column::EndReason,
                Expr::value(end_reason_text(reason)),
            )
            .col_expr(browser::Column::LiveName, Expr::value(None::<String>))
            .col_expr(browser::Column::DeletedAt, Expr::value(to_millis(now)))
            .col_expr(
                browser::Column::ProcessId,
                Expr::value(self.process_column()),
            )
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(is_active())
    }

    async fn withdraw(
        &self,
        withdrawing: UpdateMany<browser::Entity>,
        id: &BrowserId,
    ) -> Result<bool, StoreError> {
        let transaction = self.writer.begin().await?;
        if withdrawing.exec(&transaction).await?.rows_affected == 0 {
            return Ok(false);
        }
        let events = record_browser_ended(&transaction, id).await?;
        self.commit_with_events(transaction, events).await?;
        self.hint(Hint::Browser(id.clone()));
        Ok(true)
    }

    /// Makes this process the one that ends a browser, unless that is no longer `process`.
    pub async fn adopt_ending_browser(
        &self,
        id: &BrowserId,
        process: Option<ControlProcessId>,
    ) -> Result<bool, StoreError> {
        let is_same = match process {
            Some(process) => browser::Column::ProcessId.eq(process.0),
            None => browser::Column::ProcessId.is_null(),
        };
        let adopted = browser::Entity::update_many()
            .col_expr(
                browser::Column::ProcessId,
                Expr::value(self.process_column()),
            )
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(DELETING))
            .filter(is_same)
            .exec(&self.writer)
            .await?;
        Ok(adopted.rows_affected > 0)
    }

    /// Marks a browser as deleted, once its host is stopped. If [`Self::withdraw_browser`] has
    /// recorded the reason and the time, they stay.
    ///
    /// Succeeds in any order with a retried `withdraw_browser`, which then changes nothing.
    pub async fn close_browser(
        &self,
        id: &BrowserId,
        reason: EndReason,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let transaction = self.writer.begin().await?;
        let withdrawing = self.withdrawing(id, reason, now);
        let events = match withdrawing.exec(&transaction).await?.rows_affected {
            0 => RecordedEvents::default(),
            _ => record_browser_ended(&transaction, id).await?,
        };
        browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(DELETED))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(DELETING))
            .exec(&transaction)
            .await?;
        delete_write_lock(&transaction, id).await?;
        self.commit_with_events(transaction, events).await
    }

    /// Deletes the row of a browser that is being created. Returns false if it is not.
    pub async fn delete_creating_browser(&self, id: &BrowserId) -> Result<bool, StoreError> {
        let transaction = self.writer.begin().await?;
        let deleted = browser::Entity::delete_many()
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(CREATING))
            .exec(&transaction)
            .await?;
        let is_deleted = deleted.rows_affected > 0;
        if is_deleted {
            delete_write_lock(&transaction, id).await?;
        }
        transaction.commit().await?;
        Ok(is_deleted)
    }

    /// Deletes the rows of browsers that ended before `before`. Returns how many.
    pub async fn purge_browsers(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let purged = browser::Entity::delete_many()
            .filter(browser::Column::State.eq(DELETED))
            .filter(browser::Column::DeletedAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }

    /// Changes an active browser. Returns `None` if it is not active.
    pub async fn change_browser(
        &self,
        id: &BrowserId,
        change: Change,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let transaction = self.writer.begin().await?;
        // The first statement writes even if nothing differs, so that it takes the write lock and
        // checks the state in one step.
        let update = update_of(id, &change)?;
        if update.exec(&transaction).await?.rows_affected == 0 {
            return Ok(None);
        }
        if let Some(tags) = &change.tags {
            browser_tag::Entity::delete_many()
                .filter(browser_tag::Column::BrowserId.eq(id.to_string()))
                .exec(&transaction)
                .await?;
            insert_tags(&transaction, id.as_str(), tags).await?;
        }
        let row = browser::Entity::find_by_id(id.to_string())
            .one(&transaction)
            .await?;
        transaction.commit().await?;
        self.with_tags(row).await
    }
}

/// Locks the profile of a browser that is about to start until the end of the transaction. If the
/// browser is to save it, it gets the exclusive right to do so.
pub(in crate::control::store) async fn reserve_profile(
    transaction: &DatabaseTransaction,
    browser: &browser::Model,
    profile: &BrowserProfileRow,
) -> Result<(), CreateBrowserError> {
    let row = lock_profile(transaction, &profile.id).await?;
    if row.is_none_or(|row| row.project_id != browser.project_id) {
        return Err(CreateBrowserError::ProfileNotFound);
    }
    if !profile.save_changes {
        return Ok(());
    }
    if write_lock(transaction, &profile.id).await?.is_some() {
        return Err(CreateBrowserError::ProfileInUse);
    }
    if is_being_saved(transaction, &profile.id).await? {
        return Err(CreateBrowserError::ProfileBeingSaved);
    }
    Ok(set_write_lock(transaction, &profile.id, &browser.id).await?)
}

/// Builds the statement that changes the columns of an active browser.
fn update_of(id: &BrowserId, change: &Change) -> Result<UpdateMany<browser::Entity>, StoreError> {
    let mut update = browser::Entity::update_many()
        .col_expr(browser::Column::State, Expr::value(ACTIVE))
        .filter(browser::Column::Id.eq(id.to_string()))
        .filter(is_active());
    if let Some(name) = &change.name {
        update = update
            .col_expr(browser::Column::Name, Expr::value(name.clone()))
            .col_expr(browser::Column::LiveName, Expr::value(name.clone()));
    }
    if let Some(viewport) = change.viewport {
        let (width, height) = (to_column(viewport.width)?, to_column(viewport.height)?);
        let refresh_rate = to_column(viewport.refresh_rate)?;
        update = update
            .col_expr(browser::Column::ViewportWidth, Expr::value(width))
            .col_expr(browser::Column::ViewportHeight, Expr::value(height))
            .col_expr(browser::Column::RefreshRate, Expr::value(refresh_rate));
    }
    if let Some(start_url) = &change.start_url {
        update = update.col_expr(browser::Column::StartUrl, Expr::value(start_url.clone()));
    }
    Ok(update)
}

/// Converts a number of a viewport to the type of its column.
fn to_column(value: u32) -> Result<i32, StoreError> {
    i32::try_from(value).map_err(|_| corrupt("viewport", value))
}

/// Inserts the row of a browser with its tags.
pub(in crate::control::store) async fn insert_browser(
    db: &impl ConnectionTrait,
    row: &browser::Model,
    tags: &BTreeMap<String, String>,
) -> Result<(), StoreError> {
    let all_set = sea_orm::IntoActiveModel::into_active_model(row.clone()).reset_all();
    browser::Entity::insert(all_set)
        .exec_without_returning(db)
        .await?;
    Ok(insert_tags(db, &row.id, tags).await?)
}

async fn insert_tags(
    db: &impl ConnectionTrait,
    id: &str,
    tags: &BTreeMap<String, String>,
) -> Result<(), DbErr> {
    if tags.is_empty() {
        return Ok(());
    }
    let rows = tags.iter().map(|(key, value)| browser_tag::ActiveModel {
        browser_id: Set(id.to_owned()),
        key: Set(key.clone()),
        value: Set(value.clone()),
    });
    browser_tag::Entity::insert_many(rows)
        .exec_without_returning(db)
        .await?;
    Ok(())
}
