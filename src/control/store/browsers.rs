use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait,
    ActiveValue::Set,
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, ExprTrait, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait, TransactionTrait,
    sea_query::{Expr, Func, LikeExpr},
};

use super::{
    Store, StoreError, corrupt,
    entity::{browser, browser_tag},
    from_millis, to_millis,
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        viewport::Viewport,
    },
    control::browsers::state::{EndReason, State},
};

/// A browser as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserRow {
    pub id: BrowserId,
    pub project_id: ProjectId,
    pub name: Option<String>,
    pub state: State,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub created_at: DateTime<Utc>,
    pub deleted_at: Option<DateTime<Utc>>,
}

/// What is to be stored of a new browser.
#[derive(Debug, Clone)]
pub struct NewBrowserRow {
    pub id: BrowserId,
    pub project_id: ProjectId,
    pub name: Option<String>,
    pub headless: bool,
    pub kiosk_mode: bool,
    pub timeout_seconds: u32,
    pub viewport: Viewport,
    pub start_url: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub idempotency: Option<Creation>,
}

/// Which request made a browser, so that its repetition finds it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    pub key: String,
    pub request_digest: [u8; 32],
}

/// What is to change; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub name: Option<String>,
    pub tags: Option<BTreeMap<String, String>>,
    pub viewport: Option<Viewport>,
    pub start_url: Option<String>,
}

/// Which part of the records is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateFilter {
    #[default]
    Active,
    Deleted,
    All,
}

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub state: StateFilter,
    /// Case does not matter; found in the id and the name.
    pub query: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub offset: u64,
    pub limit: u64,
}

const CREATING: &str = "creating";
const ACTIVE: &str = "active";
const DELETING: &str = "deleting";
const DELETED: &str = "deleted";

fn reason_text(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Deleted => "deleted",
        EndReason::Idle => "idle",
        EndReason::Gone => "gone",
    }
}

fn parse_state(state: &str, reason: Option<&str>) -> Result<State, StoreError> {
    let reason = || match reason {
        Some("deleted") => Ok(EndReason::Deleted),
        Some("idle") => Ok(EndReason::Idle),
        Some("gone") => Ok(EndReason::Gone),
        other => Err(corrupt("end reason", other.unwrap_or("NULL"))),
    };
    Ok(match state {
        CREATING => State::Creating,
        ACTIVE => State::Active,
        DELETING => State::Deleting(reason()?),
        DELETED => State::Deleted(reason()?),
        other => return Err(corrupt("browser state", other)),
    })
}

fn to_row(row: browser::Model, tags: BTreeMap<String, String>) -> Result<BrowserRow, StoreError> {
    let side = |value: i32| u32::try_from(value).map_err(|_| corrupt("viewport", value));
    Ok(BrowserRow {
        state: parse_state(&row.state, row.end_reason.as_deref())?,
        id: row.id.parse().map_err(|_| corrupt("browser id", &row.id))?,
        project_id: row
            .project_id
            .parse()
            .map_err(|_| corrupt("project id", &row.project_id))?,
        name: row.name,
        headless: row.headless,
        kiosk_mode: row.kiosk_mode,
        timeout_seconds: u32::try_from(row.timeout_seconds)
            .map_err(|_| corrupt("timeout", row.timeout_seconds))?,
        viewport: Viewport {
            width: side(row.viewport_width)?,
            height: side(row.viewport_height)?,
            refresh_rate: side(row.refresh_rate)?,
        },
        start_url: row.start_url,
        tags,
        created_at: from_millis(row.created_at)?,
        deleted_at: row.deleted_at.map(from_millis).transpose()?,
    })
}

fn pixels(value: u32) -> Result<i32, StoreError> {
    i32::try_from(value).map_err(|_| corrupt("viewport", value))
}

impl Store {
    /// Records a browser that is about to start. `Taken` where its name belongs to a live one, `KeyTaken` where its
    /// idempotency key belongs to another.
    pub async fn create_browser(
        &self,
        new: NewBrowserRow,
        now: DateTime<Utc>,
    ) -> Result<BrowserRow, StoreError> {
        let row = browser::Model {
            id: new.id.to_string(),
            project_id: new.project_id.to_string(),
            name: new.name.clone(),
            live_name: new.name,
            state: CREATING.to_owned(),
            end_reason: None,
            headless: new.headless,
            kiosk_mode: new.kiosk_mode,
            timeout_seconds: new.timeout_seconds.into(),
            viewport_width: pixels(new.viewport.width)?,
            viewport_height: pixels(new.viewport.height)?,
            refresh_rate: pixels(new.viewport.refresh_rate)?,
            start_url: new.start_url,
            idempotency_key: new.idempotency.as_ref().map(|c| c.key.clone()),
            request_digest: new.idempotency.map(|c| c.request_digest.to_vec()),
            created_at: to_millis(now),
            deleted_at: None,
        };
        // The first statement writes, so that the transaction owns the write lock from its start.
        let transaction = self.db.begin().await?;
        let all_set = sea_orm::IntoActiveModel::into_active_model(row.clone()).reset_all();
        browser::Entity::insert(all_set)
            .exec_without_returning(&transaction)
            .await?;
        insert_tags(&transaction, &row.id, &new.tags).await?;
        transaction.commit().await?;
        to_row(row, new.tags)
    }

    /// Records that a browser answers. False where it is not being created (any more).
    pub async fn publish_browser(&self, id: &BrowserId) -> Result<bool, StoreError> {
        let changed = browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(ACTIVE))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(CREATING))
            .exec(&self.db)
            .await?;
        Ok(changed.rows_affected > 0)
    }

    /// Hides an active browser from clients. False where it is not active (any more).
    pub async fn withdraw_browser(
        &self,
        id: &BrowserId,
        reason: EndReason,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let changed = browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(DELETING))
            .col_expr(browser::Column::EndReason, Expr::value(reason_text(reason)))
            .col_expr(browser::Column::LiveName, Expr::value(None::<String>))
            .col_expr(browser::Column::DeletedAt, Expr::value(to_millis(now)))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(ACTIVE))
            .exec(&self.db)
            .await?;
        Ok(changed.rows_affected > 0)
    }

    /// Records that nothing is left of a withdrawn browser.
    pub async fn close_browser(&self, id: &BrowserId) -> Result<(), StoreError> {
        browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(DELETED))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(DELETING))
            .exec(&self.db)
            .await?;
        Ok(())
    }

    /// Removes the record of a browser that never came up.
    pub async fn forget_browser(&self, id: &BrowserId) -> Result<(), StoreError> {
        browser::Entity::delete_many()
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(CREATING))
            .exec(&self.db)
            .await?;
        Ok(())
    }

    /// What an earlier process left unfinished: the ids of all browsers that are not closed.
    pub async fn unfinished_browsers(&self) -> Result<Vec<(BrowserId, State)>, StoreError> {
        browser::Entity::find()
            .filter(browser::Column::State.ne(DELETED))
            .all(&self.db)
            .await?
            .into_iter()
            .map(|row| {
                let state = parse_state(&row.state, row.end_reason.as_deref())?;
                let id = row.id.parse().map_err(|_| corrupt("browser id", &row.id))?;
                Ok((id, state))
            })
            .collect()
    }

    /// Removes the records of browsers that ended before `before`; says how many.
    pub async fn purge_browsers(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let purged = browser::Entity::delete_many()
            .filter(browser::Column::State.eq(DELETED))
            .filter(browser::Column::DeletedAt.lt(to_millis(before)))
            .exec(&self.db)
            .await?;
        Ok(purged.rows_affected)
    }

    /// A published browser of `project` by its id.
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

    /// A published browser of `project` by its name: the live one, else the one that bore the name last.
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

    /// The id of the live browser called `name`, published or not.
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

    /// The browser that was made with `key` after `since`, and the digest of the request that made it. A key that was used before that
    /// is free again.
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
            .exec(&self.db)
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

    /// Newest first; one more than `limit` where there are more.
    pub async fn list_browsers(
        &self,
        project: &ProjectId,
        listing: &Listing,
    ) -> Result<Vec<BrowserRow>, StoreError> {
        let mut query = browser::Entity::find()
            .filter(browser::Column::ProjectId.eq(project.to_string()))
            .filter(state_condition(listing.state));
        if let Some(text) = &listing.query {
            let pattern = like_pattern(text);
            let matches = |column: browser::Column| {
                Expr::expr(Func::lower(Expr::col(column)))
                    .like(LikeExpr::new(pattern.clone()).escape('\\'))
            };
            query = query.filter(
                Condition::any()
                    .add(matches(browser::Column::Id))
                    .add(matches(browser::Column::Name)),
            );
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
        rows.into_iter()
            .map(|row| {
                let tags = tags.remove(&row.id).unwrap_or_default();
                to_row(row, tags)
            })
            .collect()
    }

    /// Changes an active browser; `None` where there is none (any more), `Taken` where its new name belongs to another live one.
    pub async fn change_browser(
        &self,
        id: &BrowserId,
        change: Change,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let transaction = self.db.begin().await?;
        // Written first, even where nothing differs: the transaction takes the write lock and checks the state in one.
        let mut update = browser::Entity::update_many()
            .col_expr(browser::Column::State, Expr::value(ACTIVE))
            .filter(browser::Column::Id.eq(id.to_string()))
            .filter(browser::Column::State.eq(ACTIVE));
        if let Some(name) = change.name {
            update = update
                .col_expr(browser::Column::Name, Expr::value(name.clone()))
                .col_expr(browser::Column::LiveName, Expr::value(name));
        }
        if let Some(viewport) = change.viewport {
            update = update
                .col_expr(
                    browser::Column::ViewportWidth,
                    Expr::value(pixels(viewport.width)?),
                )
                .col_expr(
                    browser::Column::ViewportHeight,
                    Expr::value(pixels(viewport.height)?),
                )
                .col_expr(
                    browser::Column::RefreshRate,
                    Expr::value(pixels(viewport.refresh_rate)?),
                );
        }
        if let Some(start_url) = change.start_url {
            update = update.col_expr(browser::Column::StartUrl, Expr::value(start_url));
        }
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

    async fn with_tags(
        &self,
        row: Option<browser::Model>,
    ) -> Result<Option<BrowserRow>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let mut tags = self.tags_of(vec![row.id.clone()]).await?;
        let tags = tags.remove(&row.id).unwrap_or_default();
        to_row(row, tags).map(Some)
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

fn state_condition(filter: StateFilter) -> Condition {
    let state = browser::Column::State;
    match filter {
        StateFilter::Active => Condition::all().add(state.eq(ACTIVE)),
        StateFilter::Deleted => Condition::all().add(state.is_in([DELETING, DELETED])),
        StateFilter::All => Condition::all().add(state.is_in([ACTIVE, DELETING, DELETED])),
    }
}

/// `text` somewhere in a lower-cased column, its own wildcards taken literally.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    async fn store() -> (tempfile::TempDir, Store, ProjectId) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.db");
        let store = Store::open_sqlite(&path).await.unwrap();
        let project = store.default_project("default", Utc::now()).await.unwrap();
        (folder, store, project.id)
    }

    fn new(project: &ProjectId, name: Option<&str>) -> NewBrowserRow {
        NewBrowserRow {
            id: BrowserId::generate(),
            project_id: project.clone(),
            name: name.map(str::to_owned),
            headless: true,
            kiosk_mode: false,
            timeout_seconds: 60,
            viewport: Viewport::default(),
            start_url: None,
            tags: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            idempotency: None,
        }
    }

    async fn publish(store: &Store, new: NewBrowserRow) -> BrowserRow {
        let row = store.create_browser(new, Utc::now()).await.unwrap();
        assert!(store.publish_browser(&row.id).await.unwrap());
        row
    }

    #[tokio::test]
    async fn a_browser_is_found_from_its_publication_to_its_end() {
        let (_folder, store, project) = store().await;
        let now = Utc::now();
        let made = store
            .create_browser(new(&project, Some("n")), now)
            .await
            .unwrap();
        let find = async |filter| {
            store
                .find_browser(&project, &made.id, filter)
                .await
                .unwrap()
        };
        assert_eq!(find(StateFilter::All).await, None);
        assert!(store.publish_browser(&made.id).await.unwrap());
        let active = find(StateFilter::Active).await.unwrap();
        assert_eq!((active.state, &active.tags), (State::Active, &made.tags));
        assert_eq!(find(StateFilter::Deleted).await, None);

        let reason = EndReason::Idle;
        assert!(store.withdraw_browser(&made.id, reason, now).await.unwrap());
        assert!(!store.withdraw_browser(&made.id, reason, now).await.unwrap());
        assert_eq!(find(StateFilter::Active).await, None);
        assert_eq!(
            find(StateFilter::Deleted).await.unwrap().state,
            State::Deleting(reason)
        );
        assert_eq!(store.unfinished_browsers().await.unwrap().len(), 1);
        store.close_browser(&made.id).await.unwrap();
        assert_eq!(store.unfinished_browsers().await.unwrap(), []);
        let ended = find(StateFilter::All).await.unwrap();
        assert_eq!(ended.state, State::Deleted(reason));
        assert_eq!(
            ended.deleted_at.unwrap().timestamp_millis(),
            now.timestamp_millis()
        );
        assert!(!store.publish_browser(&made.id).await.unwrap());
    }

    #[tokio::test]
    async fn a_key_that_is_taken_is_told_from_a_name_that_is() {
        let (_folder, store, project) = store().await;
        let with_key = |name| NewBrowserRow {
            idempotency: Some(Creation {
                key: "k".to_owned(),
                request_digest: [0; 32],
            }),
            ..new(&project, Some(name))
        };
        store
            .create_browser(with_key("a"), Utc::now())
            .await
            .unwrap();
        let same_key = store.create_browser(with_key("b"), Utc::now()).await;
        assert!(
            matches!(same_key, Err(StoreError::KeyTaken)),
            "{same_key:?}"
        );
        let same_name = new(&project, Some("a"));
        let same_name = store.create_browser(same_name, Utc::now()).await;
        assert!(matches!(same_name, Err(StoreError::Taken)), "{same_name:?}");
    }

    #[tokio::test]
    async fn a_name_is_unique_among_the_live_ones_of_a_project() {
        let (_folder, store, project) = store().await;
        let other = store.create_project("other", Utc::now()).await.unwrap().id;
        let first = publish(&store, new(&project, Some("n"))).await;
        let taken = store.create_browser(new(&project, Some("n")), Utc::now());
        assert!(matches!(taken.await, Err(StoreError::Taken)));
        publish(&store, new(&other, Some("n"))).await;
        let unnamed = publish(&store, new(&project, None)).await;
        publish(&store, new(&project, None)).await;

        let rename = Change {
            name: Some("n".to_owned()),
            tags: Some(BTreeMap::new()),
            ..Change::default()
        };
        let taken = store.change_browser(&unnamed.id, rename.clone()).await;
        assert!(matches!(taken, Err(StoreError::Taken)));
        // Nothing of a change that is refused is kept, and the database is not held up.
        let found = store.find_browser(&project, &unnamed.id, StateFilter::All);
        assert_eq!(found.await.unwrap().unwrap().tags, unnamed.tags);

        let now = Utc::now();
        store
            .withdraw_browser(&first.id, EndReason::Deleted, now)
            .await
            .unwrap();
        let renamed = store.change_browser(&unnamed.id, rename).await.unwrap();
        assert_eq!(renamed.unwrap().name.as_deref(), Some("n"));
        let found = store.find_browser_named(&project, "n", StateFilter::All);
        assert_eq!(found.await.unwrap().unwrap().id, unnamed.id);
        let found = store.find_browser_named(&project, "n", StateFilter::Deleted);
        assert_eq!(found.await.unwrap().unwrap().id, first.id);
    }

    #[tokio::test]
    async fn an_idempotency_key_is_free_again_once_it_has_run_out() {
        let (_folder, store, project) = store().await;
        let creation = Creation {
            key: "k".to_owned(),
            request_digest: [7; 32],
        };
        let with_key = || NewBrowserRow {
            idempotency: Some(creation.clone()),
            ..new(&project, None)
        };
        let first = publish(&store, with_key()).await;
        let again = store.create_browser(with_key(), Utc::now()).await;
        assert!(matches!(again, Err(StoreError::KeyTaken)));
        let since = Utc::now() - TimeDelta::minutes(10);
        let found = store.find_creation(&project, "k", since).await.unwrap();
        let (row, digest) = found.unwrap();
        assert_eq!((row.id, digest), (first.id, vec![7; 32]));

        let later = Utc::now() + TimeDelta::minutes(10);
        assert_eq!(
            store.find_creation(&project, "k", later).await.unwrap(),
            None
        );
        publish(&store, with_key()).await;
    }

    #[tokio::test]
    async fn a_start_that_failed_leaves_no_row() {
        let (_folder, store, project) = store().await;
        let made = store
            .create_browser(new(&project, Some("n")), Utc::now())
            .await
            .unwrap();
        store.forget_browser(&made.id).await.unwrap();
        assert_eq!(store.unfinished_browsers().await.unwrap(), []);
        let again = publish(&store, new(&project, Some("n"))).await;
        // What lives is not forgotten.
        store.forget_browser(&again.id).await.unwrap();
        assert_eq!(store.unfinished_browsers().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn records_of_ended_browsers_are_purged_in_time() {
        let (_folder, store, project) = store().await;
        let (live, old) = (new(&project, None), new(&project, None));
        let (live, old) = (publish(&store, live).await, publish(&store, old).await);
        let then = Utc::now();
        let reason = EndReason::Deleted;
        assert!(store.withdraw_browser(&old.id, reason, then).await.unwrap());
        let later = then + TimeDelta::milliseconds(1);
        // Its host is still being stopped.
        assert_eq!(store.purge_browsers(later).await.unwrap(), 0);
        store.close_browser(&old.id).await.unwrap();
        assert_eq!(store.purge_browsers(then).await.unwrap(), 0);
        assert_eq!(store.purge_browsers(later).await.unwrap(), 1);
        for (id, found) in [(old.id, false), (live.id, true)] {
            let row = store.find_browser(&project, &id, StateFilter::All);
            assert_eq!(row.await.unwrap().is_some(), found);
        }
    }

    #[tokio::test]
    async fn a_database_opens_again_and_has_one_default_project() {
        let (folder, store, project) = store().await;
        let made = publish(&store, new(&project, None)).await;
        store.close().await.unwrap();
        let store = Store::open_sqlite(&folder.path().join("b.db"))
            .await
            .unwrap();
        let default = store.default_project("default", Utc::now()).await.unwrap();
        assert_eq!(default.id, project);
        let listing = Listing {
            limit: 10,
            ..Listing::default()
        };
        let listed = store.list_browsers(&project, &listing).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].id, made.id);
    }

    #[tokio::test]
    async fn writers_take_turns() {
        let (_folder, store, project) = store().await;
        let all = (0..50).map(|_| publish(&store, new(&project, None)));
        assert_eq!(futures::future::join_all(all).await.len(), 50);
    }

    #[test]
    fn a_search_text_is_taken_literally() {
        assert_eq!(like_pattern("A%_\\b"), "%a\\%\\_\\\\b%");
    }
}
