//! The tables of login flows and of their states.
//!
//! Each change of a flow names the version that it was made from. So of two changes at once one is
//! repeated, and a process that has lost a flow to another one does not change it any more.
//!
//! [`rows`] has the types, [`timeline`] what has happened to a connection. [`changes`] notifies the
//! waits for a change in this process.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait, TransactionTrait, sea_query::Expr,
};

use super::{
    Hint, Store, StoreError, UniqueConstraint,
    auth_connections::{begin_login, record_failed_reauth, record_login},
    corrupt,
    entity::{
        auth_flow::{self, Column},
        auth_flow_state,
    },
    revision_column, to_millis,
    webhooks::events::{RecordedEvents, record_login_ended},
};
use crate::{
    api::ids::{AuthConnectionId, FlowId},
    control::auth_connections::flow::{Flow, Transition},
};

mod changes;
mod rows;
#[cfg(test)]
mod tests;
mod timeline;

pub use changes::FlowChanges;
pub use rows::{AuthFlowRow, FlowStateRow, HandoffCode, SealedAnswers};
pub use timeline::{AuthTimelineListing, AuthTimelineRow};
pub(super) use timeline::{insert as insert_timeline_entry, name_of, of_name};

/// Why a login flow was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateAuthFlowError {
    #[error("a login of the connection is in progress")]
    InProgress,
    #[error("there is no such connection")]
    ConnectionNotFound,
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for CreateAuthFlowError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::UniqueViolation(UniqueConstraint::AuthFlow) => {
                CreateAuthFlowError::InProgress
            }
            other => CreateAuthFlowError::Store(other),
        }
    }
}

impl Store {
    /// Creates the row of a flow that begins, with its first state, unless another one of its
    /// connection is in progress. One without a person has the number of the schedule in which it
    /// was due.
    pub async fn create_auth_flow(
        &self,
        row: &AuthFlowRow,
        begun: &Transition,
        due_in: Option<u64>,
    ) -> Result<(), CreateAuthFlowError> {
        let model = row.to_model()?;
        let transaction = self.writer.begin().await.map_err(StoreError::from)?;
        if !begin_login(&transaction, &row.connection_id, due_in).await? {
            return Err(CreateAuthFlowError::ConnectionNotFound);
        }
        let model = auth_flow::ActiveModel::from(model).reset_all();
        auth_flow::Entity::insert(model)
            .exec_without_returning(&transaction)
            .await
            .map_err(StoreError::from)?;
        record(&transaction, row, None, begun).await?;
        transaction.commit().await.map_err(StoreError::from)?;
        self.flow_changed(row.id());
        Ok(())
    }

    /// Stores the consequence of an event, with the columns of `row` beside the state. `row` has
    /// the version that it was made from. Returns the new row, or `None` if the flow has changed
    /// since.
    pub async fn advance_auth_flow(
        &self,
        row: AuthFlowRow,
        transition: &Transition,
        now: DateTime<Utc>,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        let before = row.flow.clone();
        let mut next = AuthFlowRow {
            flow: transition.flow.clone(),
            version: row.version + 1,
            ..row
        };
        let ends = next.flow.has_ended() && !before.has_ended();
        if ends {
            next.ended_at = Some(now);
            next.answers = None;
            next.handoff = None;
        }
        let transaction = self.writer.begin().await?;
        if !replace(&transaction, &next).await? {
            return Ok(None);
        }
        record(&transaction, &next, Some(&before), transition).await?;
        let events = match ends {
            true => record_end(&transaction, &next, now).await?,
            false => RecordedEvents::default(),
        };
        self.commit_with_events(transaction, events).await?;
        self.flow_changed(next.id());
        Ok(Some(next))
    }

    /// Makes this process the driver of a flow, instead of another one. Returns the row, or `None`
    /// if the flow has changed since.
    pub async fn adopt_auth_flow(
        &self,
        row: AuthFlowRow,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        let next = AuthFlowRow {
            version: row.version + 1,
            driver: self.process,
            ..row
        };
        let is_replaced = replace(&self.writer, &next).await?;
        Ok(is_replaced.then_some(next))
    }

    /// Finds the flow in progress whose unused code has a digest.
    pub async fn find_handoff_code(
        &self,
        connection: &AuthConnectionId,
        digest: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        let found = auth_flow::Entity::find()
            .filter(Column::ActiveConnectionId.eq(connection.as_str()))
            .filter(Column::HandoffDigest.eq(digest))
            .filter(Column::HandoffExpiresAt.gt(to_millis(now)))
            .one(&self.db)
            .await?;
        found.map(TryInto::try_into).transpose()
    }

    /// Uses the code of a flow. Returns whether it was unused.
    pub async fn use_handoff_code(&self, id: &FlowId, digest: &str) -> Result<bool, StoreError> {
        let used = auth_flow::Entity::update_many()
            .col_expr(Column::HandoffDigest, Expr::value(None::<String>))
            .filter(Column::Id.eq(id.as_str()))
            .filter(Column::HandoffDigest.eq(digest))
            .exec(&self.writer)
            .await?;
        Ok(used.rows_affected > 0)
    }

    /// Finds a flow by its id.
    pub async fn find_auth_flow(&self, id: &FlowId) -> Result<Option<AuthFlowRow>, StoreError> {
        let found = auth_flow::Entity::find_by_id(id.as_str()).one(&self.db);
        found.await?.map(TryInto::try_into).transpose()
    }

    /// Finds the flow of a connection that is in progress.
    pub async fn active_auth_flow(
        &self,
        connection: &AuthConnectionId,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        let found = auth_flow::Entity::find()
            .filter(Column::ActiveConnectionId.eq(connection.as_str()))
            .one(&self.db);
        found.await?.map(TryInto::try_into).transpose()
    }

    /// Finds the flow of a connection that is in progress, or else the newest one.
    pub async fn newest_auth_flow(
        &self,
        connection: &AuthConnectionId,
    ) -> Result<Option<AuthFlowRow>, StoreError> {
        // Ids of processes whose clocks differ are not in the order of the flows.
        if let Some(active) = self.active_auth_flow(connection).await? {
            return Ok(Some(active));
        }
        let found = auth_flow::Entity::find()
            .filter(Column::ConnectionId.eq(connection.as_str()))
            .order_by_desc(Column::Id)
            .limit(1)
            .one(&self.db);
        found.await?.map(TryInto::try_into).transpose()
    }

    /// Returns the newest flow of each of several connections, if it has one.
    pub async fn newest_auth_flows(
        &self,
        connections: &[AuthConnectionId],
    ) -> Result<Vec<AuthFlowRow>, StoreError> {
        let ids = connections.iter().map(AuthConnectionId::as_str);
        let newest = auth_flow::Entity::find()
            .select_only()
            .column_as(Column::Id.max(), "newest")
            .filter(Column::ConnectionId.is_in(ids))
            .group_by(Column::ConnectionId)
            .into_query();
        let rows = auth_flow::Entity::find()
            .filter(Column::Id.in_subquery(newest))
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Returns all flows in progress. Skips those that a newer program has written.
    pub async fn active_auth_flows(&self) -> Result<Vec<AuthFlowRow>, StoreError> {
        let rows = auth_flow::Entity::find()
            .filter(Column::ActiveConnectionId.is_not_null())
            .all(&self.db)
            .await?;
        let flows = rows.into_iter().filter_map(|row| {
            let read = AuthFlowRow::try_from(row);
            read.inspect_err(|error| tracing::warn!(%error, "cannot read a login"))
                .ok()
        });
        Ok(flows.collect())
    }

    /// Returns up to `limit` states of a flow after a number, in order.
    pub async fn auth_flow_states(
        &self,
        id: &FlowId,
        after: u64,
        limit: u64,
    ) -> Result<Vec<FlowStateRow>, StoreError> {
        use auth_flow_state::Column;
        let rows = auth_flow_state::Entity::find()
            .filter(Column::FlowId.eq(id.as_str()))
            .filter(Column::Number.gt(revision_column(after)?))
            .order_by_asc(Column::Number)
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Deletes the flows that ended before a time, with their states. Returns how many.
    pub async fn purge_auth_flows(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let ended = || Column::EndedAt.lt(to_millis(before));
        let transaction = self.writer.begin().await?;
        let ids = auth_flow::Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(ended())
            .into_query();
        auth_flow_state::Entity::delete_many()
            .filter(auth_flow_state::Column::FlowId.in_subquery(ids))
            .exec(&transaction)
            .await?;
        let purged = auth_flow::Entity::delete_many()
            .filter(ended())
            .exec(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(purged.rows_affected)
    }

    /// Returns the waits for changes of flows in this process.
    #[must_use]
    pub fn flow_changes(&self) -> &FlowChanges {
        &self.changed_flows
    }

    /// Notifies this process and the others that a flow has changed.
    pub(super) fn flow_changed(&self, id: &FlowId) {
        self.changed_flows.notify(id);
        self.hint(Hint::AuthFlow(id.clone()));
    }
}

/// Replaces a row that has the version before that of `next`. Returns whether there is one.
async fn replace(db: &impl ConnectionTrait, next: &AuthFlowRow) -> Result<bool, StoreError> {
    let changed = next.to_model()?;
    let mut replacing = auth_flow::Entity::update_many();
    if changed.ended_at.is_some() {
        // Otherwise the code may have been used since the row was read.
        replacing = replacing.col_expr(Column::HandoffDigest, Expr::value(None::<String>));
    }
    let replaced = replacing
        .col_expr(
            Column::ActiveConnectionId,
            Expr::value(changed.active_connection_id),
        )
        .col_expr(Column::State, Expr::value(changed.state))
        .col_expr(Column::Version, Expr::value(changed.version))
        .col_expr(Column::PageMark, Expr::value(changed.page_mark))
        .col_expr(
            Column::AnswersKeyVersion,
            Expr::value(changed.answers_key_version),
        )
        .col_expr(Column::SealedAnswers, Expr::value(changed.sealed_answers))
        .col_expr(Column::ReplayId, Expr::value(changed.replay_id))
        .col_expr(Column::Driver, Expr::value(changed.driver))
        .col_expr(Column::EndedAt, Expr::value(changed.ended_at))
        .filter(Column::Id.eq(changed.id))
        .filter(Column::Version.eq(changed.version - 1))
        .exec(db)
        .await?;
    Ok(replaced.rows_affected > 0)
}

/// Records what clients see of a transition.
async fn record(
    transaction: &DatabaseTransaction,
    row: &AuthFlowRow,
    before: Option<&Flow>,
    transition: &Transition,
) -> Result<(), StoreError> {
    if let Some(state) = &transition.state {
        let state = auth_flow_state::Model {
            flow_id: row.id().to_string(),
            number: i64::from(transition.flow.revision()),
            state: serde_json::to_string(state)
                .map_err(|error| corrupt("state of a login", error))?,
        };
        let state = auth_flow_state::ActiveModel::from(state).reset_all();
        auth_flow_state::Entity::insert(state)
            .exec_without_returning(transaction)
            .await?;
    }
    if let Some(entry) = &transition.entry {
        let entry = AuthTimelineRow::of_flow(row, before, entry);
        timeline::insert(transaction, &entry).await?;
    }
    Ok(())
}

/// Records the end of a flow with the connection.
async fn record_end(
    transaction: &DatabaseTransaction,
    row: &AuthFlowRow,
    now: DateTime<Utc>,
) -> Result<RecordedEvents, StoreError> {
    let ended = record_login_ended(transaction, row).await?;
    let changed = match row.flow.error_code() {
        None => record_login(transaction, row, now).await?,
        Some(error) if !row.flow.settings().is_attended => {
            record_failed_reauth(transaction, row, error, now).await?
        }
        Some(_) => RecordedEvents::default(),
    };
    Ok(ended.and(changed))
}

/// Deletes the flows and the timeline of a connection that is being deleted. Returns the flow that
/// was in progress.
pub(super) async fn delete_flows_of(
    transaction: &DatabaseTransaction,
    connection: &AuthConnectionId,
) -> Result<Option<FlowId>, StoreError> {
    let of_connection = || Column::ConnectionId.eq(connection.as_str());
    let rows: Vec<(String, Option<i64>)> = auth_flow::Entity::find()
        .select_only()
        .column(Column::Id)
        .column(Column::EndedAt)
        .filter(of_connection())
        .into_tuple()
        .all(transaction)
        .await?;
    // Waits for a change of a flow that is not committed yet, whose state is deleted then.
    auth_flow::Entity::delete_many()
        .filter(of_connection())
        .exec(transaction)
        .await?;
    let ids = rows.iter().map(|(id, _)| id.as_str());
    auth_flow_state::Entity::delete_many()
        .filter(auth_flow_state::Column::FlowId.is_in(ids))
        .exec(transaction)
        .await?;
    timeline::delete_of(transaction, connection).await?;
    let active = rows.into_iter().find(|(_, ended_at)| ended_at.is_none());
    let parse = |(id, _): (String, _)| id.parse().map_err(|_| corrupt("flow id", id));
    active.map(parse).transpose()
}
