//! The table of replays.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, ExprTrait, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait, TransactionTrait,
    sea_query::{Expr, OnConflict, SelectStatement},
};

use super::{
    Fleet, Store, StoreError,
    browsers::is_active,
    corrupt,
    entity::{browser, host, replay},
    from_millis,
    hosts::{fleet_text, state_text as host_state_text},
    to_millis,
    webhooks::events::record_replay_moved,
};
use crate::{
    api::{
        ids::{BrowserId, ProjectId, ReplayId},
        replays::ReplayEndReason,
    },
    control::{hosts::state::State as HostState, replays::state::State},
};

/// A row of the table of replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRow {
    pub id: ReplayId,
    pub project_id: ProjectId,
    pub browser_id: BrowserId,
    pub state: State,
    pub started_at: DateTime<Utc>,
    pub end: ReplayEnd,
}

impl ReplayRow {
    /// Returns whether the replay is one of that browser.
    #[must_use]
    pub fn is_of(&self, project: &ProjectId, browser: &BrowserId) -> bool {
        self.project_id == *project && self.browser_id == *browser
    }
}

/// The known facts about the end of a recording. Updates add to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayEnd {
    pub finished_at: Option<DateTime<Utc>>,
    pub reason: Option<ReplayEndReason>,
    pub duration_ms: Option<u64>,
    pub size_bytes: Option<u64>,
}

const RECORDING: &str = "recording";
const FINISHED: &str = "finished";
const STORED: &str = "kept";
const LOST: &str = "lost";

fn state_text(state: State) -> &'static str {
    match state {
        State::Recording => RECORDING,
        State::Finished => FINISHED,
        State::Stored => STORED,
        State::Lost => LOST,
    }
}

fn parse_state(text: &str) -> Result<State, StoreError> {
    Ok(match text {
        RECORDING => State::Recording,
        FINISHED => State::Finished,
        STORED => State::Stored,
        LOST => State::Lost,
        other => return Err(corrupt("replay state", other)),
    })
}

/// Returns the name that the API uses.
fn reason_text(reason: ReplayEndReason) -> &'static str {
    match reason {
        ReplayEndReason::Stopped => "stopped",
        ReplayEndReason::MaxDuration => "max_duration",
        ReplayEndReason::MaxSize => "max_size",
        ReplayEndReason::ScreenEnded => "screen_ended",
        ReplayEndReason::EncoderFailed => "encoder_failed",
        ReplayEndReason::DiskFull => "disk_full",
        ReplayEndReason::AgentEnded => "agent_ended",
        ReplayEndReason::Lost => "lost",
    }
}

fn parse_reason(text: &str) -> Result<ReplayEndReason, StoreError> {
    let known = [
        ReplayEndReason::Stopped,
        ReplayEndReason::MaxDuration,
        ReplayEndReason::MaxSize,
        ReplayEndReason::ScreenEnded,
        ReplayEndReason::EncoderFailed,
        ReplayEndReason::DiskFull,
        ReplayEndReason::AgentEnded,
        ReplayEndReason::Lost,
    ];
    let found = known
        .into_iter()
        .find(|reason| reason_text(*reason) == text);
    found.ok_or_else(|| corrupt("replay end reason", text))
}

pub(super) fn to_row(row: replay::Model) -> Result<ReplayRow, StoreError> {
    let natural = |value: i64| u64::try_from(value).map_err(|_| corrupt("replay", value));
    Ok(ReplayRow {
        id: row.id.parse().map_err(|_| corrupt("replay id", &row.id))?,
        project_id: row
            .project_id
            .parse()
            .map_err(|_| corrupt("project id", &row.project_id))?,
        browser_id: row
            .browser_id
            .parse()
            .map_err(|_| corrupt("browser id", &row.browser_id))?,
        state: parse_state(&row.state)?,
        started_at: from_millis(row.started_at)?,
        end: ReplayEnd {
            finished_at: row.finished_at.map(from_millis).transpose()?,
            reason: row.end_reason.as_deref().map(parse_reason).transpose()?,
            duration_ms: row.duration_millis.map(natural).transpose()?,
            size_bytes: row.size_bytes.map(natural).transpose()?,
        },
    })
}

/// Converts a number reported by an agent, which may be any, to the type of its column.
fn to_column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Selects the ids of the browsers on registered hosts that meet a condition.
fn browsers_on(condition: Expr) -> SelectStatement {
    let hosts = host::Entity::find()
        .select_only()
        .column(host::Column::Id)
        .filter(host::Column::Fleet.eq(fleet_text(Fleet::Registered)))
        .filter(condition)
        .into_query();
    browser::Entity::find()
        .select_only()
        .column(browser::Column::Id)
        .filter(browser::Column::HostId.in_subquery(hosts))
        .into_query()
}

impl Store {
    /// Inserts a replay that is being recorded. Does nothing if it is known.
    pub async fn add_replay(
        &self,
        id: &ReplayId,
        project: &ProjectId,
        browser: &BrowserId,
        started_at: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let row = replay::Model {
            id: id.to_string(),
            project_id: project.to_string(),
            browser_id: browser.to_string(),
            state: RECORDING.to_owned(),
            end_reason: None,
            duration_millis: None,
            size_bytes: None,
            started_at: to_millis(started_at),
            finished_at: None,
        };
        let all_set = sea_orm::IntoActiveModel::into_active_model(row).reset_all();
        replay::Entity::insert(all_set)
            .on_conflict(
                OnConflict::column(replay::Column::Id)
                    .do_nothing()
                    .to_owned(),
            )
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }

    /// Moves a replay from one state to another and adds facts about its end. Returns false if it
    /// is not in the first state.
    pub async fn move_replay(
        &self,
        id: &ReplayId,
        (from, to): (State, State),
        end: &ReplayEnd,
    ) -> Result<bool, StoreError> {
        let mut update = replay::Entity::update_many()
            .col_expr(replay::Column::State, Expr::value(state_text(to)))
            .filter(replay::Column::Id.eq(id.to_string()))
            .filter(replay::Column::State.eq(state_text(from)));
        if let Some(time) = end.finished_at {
            update = update.col_expr(replay::Column::FinishedAt, Expr::value(to_millis(time)));
        }
        if let Some(reason) = end.reason {
            update = update.col_expr(replay::Column::EndReason, Expr::value(reason_text(reason)));
        }
        if let Some(duration) = end.duration_ms {
            let duration = Expr::value(to_column(duration));
            update = update.col_expr(replay::Column::DurationMillis, duration);
        }
        if let Some(size) = end.size_bytes {
            update = update.col_expr(replay::Column::SizeBytes, Expr::value(to_column(size)));
        }
        let transaction = self.writer.begin().await?;
        if update.exec(&transaction).await?.rows_affected == 0 {
            return Ok(false);
        }
        let events = record_replay_moved(&transaction, id, to).await?;
        self.commit_with_events(transaction, events).await?;
        Ok(true)
    }

    pub async fn find_replay(&self, id: &ReplayId) -> Result<Option<ReplayRow>, StoreError> {
        let row = replay::Entity::find_by_id(id.to_string())
            .one(&self.db)
            .await?;
        row.map(to_row).transpose()
    }

    /// Lists all replays of a browser in the order in which they were started.
    pub async fn replays_of(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        let rows = replay::Entity::find()
            .filter(replay::Column::ProjectId.eq(project.to_string()))
            .filter(replay::Column::BrowserId.eq(browser.to_string()))
            .order_by_asc(replay::Column::StartedAt)
            .order_by_asc(replay::Column::Id)
            .all(&self.db)
            .await?;
        rows.into_iter().map(to_row).collect()
    }

    pub async fn count_replays_of(&self, browser: &BrowserId) -> Result<u64, StoreError> {
        let found = replay::Entity::find()
            .filter(replay::Column::BrowserId.eq(browser.to_string()))
            .count(&self.db)
            .await?;
        Ok(found)
    }

    pub async fn has_replays(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
    ) -> Result<bool, StoreError> {
        let found = replay::Entity::find()
            .filter(replay::Column::ProjectId.eq(project.to_string()))
            .filter(replay::Column::BrowserId.eq(browser.to_string()))
            .count(&self.db)
            .await?;
        Ok(found > 0)
    }

    /// Returns the replays of a browser that are not fetched yet.
    pub async fn open_replays_of(&self, browser: &BrowserId) -> Result<Vec<ReplayRow>, StoreError> {
        let rows = replay::Entity::find()
            .filter(replay::Column::BrowserId.eq(browser.to_string()))
            .filter(replay::Column::State.is_in([RECORDING, FINISHED]))
            .all(&self.db)
            .await?;
        rows.into_iter().map(to_row).collect()
    }

    /// Returns the browsers that have replays which are not fetched yet, without those of
    /// registered hosts, which may still have them.
    pub async fn browsers_with_open_replays(&self) -> Result<Vec<BrowserId>, StoreError> {
        let exists = host::Column::State.ne(host_state_text(HostState::Gone));
        let on_hosts = replay::Column::BrowserId.not_in_subquery(browsers_on(exists));
        self.browsers_with_open_replays_where(on_hosts).await
    }

    /// Returns the active browsers that have replays which are not fetched yet.
    pub async fn active_browsers_with_open_replays(&self) -> Result<Vec<BrowserId>, StoreError> {
        let active = browser::Entity::find()
            .select_only()
            .column(browser::Column::Id)
            .filter(is_active())
            .into_query();
        let is_of_active = replay::Column::BrowserId.in_subquery(active);
        self.browsers_with_open_replays_where(is_of_active).await
    }

    /// Returns the browsers that have replays which are not fetched yet, and had a registered host
    /// that is gone.
    pub async fn browsers_with_replays_on_gone_hosts(&self) -> Result<Vec<BrowserId>, StoreError> {
        let is_gone = host::Column::State.eq(host_state_text(HostState::Gone));
        let on_hosts = replay::Column::BrowserId.in_subquery(browsers_on(is_gone));
        self.browsers_with_open_replays_where(on_hosts).await
    }

    async fn browsers_with_open_replays_where(
        &self,
        condition: Expr,
    ) -> Result<Vec<BrowserId>, StoreError> {
        let ids: Vec<String> = replay::Entity::find()
            .select_only()
            .column(replay::Column::BrowserId)
            .distinct()
            .filter(replay::Column::State.is_in([RECORDING, FINISHED]))
            .filter(condition)
            .into_tuple()
            .all(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("browser id", id));
        ids.into_iter().map(parse).collect()
    }

    /// Returns the replays whose files the blob store must have.
    pub async fn stored_replays(&self) -> Result<Vec<ReplayId>, StoreError> {
        let ids: Vec<String> = replay::Entity::find()
            .select_only()
            .column(replay::Column::Id)
            .filter(replay::Column::State.eq(STORED))
            .into_tuple()
            .all(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("replay id", id));
        ids.into_iter().map(parse).collect()
    }

    /// Returns the total size of the replays whose files the blob store must have, of one project
    /// or of all.
    pub async fn stored_replay_bytes(
        &self,
        project: Option<&ProjectId>,
    ) -> Result<u64, StoreError> {
        let of_project = project.map(|id| replay::Column::ProjectId.eq(id.to_string()));
        let bytes: Option<Option<i64>> = replay::Entity::find()
            .select_only()
            // PostgreSQL sums up to a decimal number of any size.
            .column_as(replay::Column::SizeBytes.sum().cast_as("bigint"), "bytes")
            .filter(replay::Column::State.eq(STORED))
            .filter(Condition::all().add_option(of_project))
            .into_tuple()
            .one(&self.db)
            .await?;
        let bytes = bytes.flatten().unwrap_or_default();
        u64::try_from(bytes).map_err(|_| corrupt("total replay size", bytes))
    }

    /// Returns up to `limit` replays that are stored or lost and ended before `before`.
    pub async fn old_replays(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<ReplayId>, StoreError> {
        let ids: Vec<String> = replay::Entity::find()
            .select_only()
            .column(replay::Column::Id)
            .filter(replay::Column::State.is_in([STORED, LOST]))
            .filter(replay::Column::FinishedAt.lt(to_millis(before)))
            .limit(limit)
            .into_tuple()
            .all(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("replay id", id));
        ids.into_iter().map(parse).collect()
    }

    pub async fn remove_replay(&self, id: &ReplayId) -> Result<(), StoreError> {
        replay::Entity::delete_by_id(id.to_string())
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns the project of a browser, even if only its replays remain.
    pub async fn project_of_browser(
        &self,
        browser: &BrowserId,
    ) -> Result<Option<ProjectId>, StoreError> {
        let row = browser::Entity::find_by_id(browser.to_string())
            .one(&self.db)
            .await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("project id", id));
        if let Some(row) = row {
            return parse(row.project_id).map(Some);
        }
        let replay = replay::Entity::find()
            .filter(replay::Column::BrowserId.eq(browser.to_string()))
            .one(&self.db)
            .await?;
        replay.map(|row| parse(row.project_id)).transpose()
    }
}
