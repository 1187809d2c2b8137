//! The status of auth connections, and the schedule of their health checks.
//!
//! Each change names the number of the one before, so that none is lost.

use chrono::{DateTime, Utc};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, ExprTrait,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait, TransactionTrait, UpdateMany,
    sea_query::Expr,
};

use super::AuthConnectionRow;
use crate::{
    api::{
        auth_connections::AuthConnectionStatus,
        auth_flow::FlowErrorCode,
        ids::{AuthConnectionId, ProjectId},
    },
    control::{
        auth_connections::{
            flow::SessionExpiry,
            health::{ConnectionHealth, ScheduleContext},
        },
        store::{
            AuthFlowRow, AuthTimelineRow, Store, StoreError,
            auth_flows::{insert_timeline_entry, of_name},
            corrupt,
            entity::{
                auth_connection::{self, Column},
                project,
            },
            from_millis,
            projects::ACTIVE,
            revision_column, to_millis,
            webhooks::events::{RecordedEvents, record_auth_change},
        },
    },
};

#[cfg(test)]
mod tests;

/// A change of the status or of the schedule of a connection.
#[derive(Debug, Clone)]
pub struct HealthChange {
    pub before: AuthConnectionRow,
    pub status: AuthConnectionStatus,
    pub health: ConnectionHealth,
    /// The entry of a health check in the timeline.
    pub check: Option<AuthTimelineRow>,
}

impl Store {
    /// Returns connections of active projects for which something is due, at most `limit` of each
    /// kind: warnings, logins, then checks. Skips those that a newer program has written.
    pub async fn due_auth_connections(
        &self,
        now: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<AuthConnectionRow>, StoreError> {
        let now = to_millis(now);
        let reauth = Condition::all()
            .add(Column::AutoReauth.eq(true))
            .add(Column::ReauthAt.lte(now));
        let check = Condition::all()
            .add(Column::HealthChecks.eq(true))
            .add(Column::CheckAt.lte(now));
        let kinds = [
            (
                Column::WarnAt,
                Condition::all().add(Column::WarnAt.lte(now)),
            ),
            (Column::ReauthAt, reauth),
            (Column::CheckAt, check),
        ];
        let mut due: Vec<AuthConnectionRow> = Vec::new();
        for (column, is_due) in kinds {
            let active = project::Entity::find()
                .select_only()
                .column(project::Column::Id)
                .filter(project::Column::Status.eq(ACTIVE))
                .into_query();
            let rows = auth_connection::Entity::find()
                .filter(is_due)
                .filter(Column::ProjectId.in_subquery(active))
                .order_by_asc(column)
                .limit(limit)
                .all(&self.db)
                .await?;
            for row in rows {
                let id = row.id.clone();
                match AuthConnectionRow::try_from(row) {
                    Ok(row) if due.iter().any(|known| known.id == row.id) => {}
                    Ok(row) => due.push(row),
                    Err(error) => {
                        tracing::warn!(connection = id, %error, "cannot read an auth connection");
                    }
                }
            }
        }
        Ok(due)
    }

    /// Stores a change, with the events that follow from it. Returns the new row, or `None` if the
    /// connection has changed since it was read.
    pub async fn change_auth_health(
        &self,
        change: HealthChange,
    ) -> Result<Option<AuthConnectionRow>, StoreError> {
        let transaction = self.writer.begin().await?;
        let (changed, events) = apply(&transaction, change).await?;
        self.commit_with_events(transaction, events).await?;
        Ok(changed)
    }
}

/// Records that the profile of a connection is logged in.
pub(in crate::control::store) async fn record_login(
    transaction: &DatabaseTransaction,
    row: &AuthFlowRow,
    now: DateTime<Utc>,
) -> Result<RecordedEvents, StoreError> {
    let Some(before) = find(transaction, &row.connection_id).await? else {
        return Ok(RecordedEvents::default());
    };
    let context = ScheduleContext::new(before.settings.health_check_interval, now);
    let change = HealthChange {
        status: AuthConnectionStatus::Authenticated,
        health: before
            .health
            .after_login(row.flow.session_expiry().cloned(), context),
        check: None,
        before,
    };
    let (_, events) = apply(transaction, change).await?;
    let browser = row.flow.browser().map(ToString::to_string);
    auth_connection::Entity::update_many()
        .col_expr(
            Column::PostLoginUrl,
            Expr::value(row.flow.state().post_login_url),
        )
        .col_expr(Column::LastAuthAt, Expr::value(to_millis(now)))
        .col_expr(Column::LastAuthCheckAt, Expr::value(to_millis(now)))
        .col_expr(Column::BrowserId, Expr::value(browser))
        .filter(Column::Id.eq(row.connection_id.as_str()))
        .exec(transaction)
        .await?;
    Ok(events)
}

/// Records that a login without a person has failed.
pub(in crate::control::store) async fn record_failed_reauth(
    transaction: &DatabaseTransaction,
    row: &AuthFlowRow,
    error: FlowErrorCode,
    now: DateTime<Utc>,
) -> Result<RecordedEvents, StoreError> {
    let found = find(transaction, &row.connection_id).await?;
    // A check may have found it logged in meanwhile.
    let Some(before) = found.filter(|row| row.status == AuthConnectionStatus::NeedsAuth) else {
        return Ok(RecordedEvents::default());
    };
    let context = ScheduleContext::new(before.settings.health_check_interval, now);
    let change = HealthChange {
        status: before.status,
        health: before.health.after_failed_reauth(error, context),
        check: None,
        before,
    };
    Ok(apply(transaction, change).await?.1)
}

/// Has the connections with a credential that has changed be logged in again.
pub(in crate::control::store) async fn resume_reauth(
    transaction: &DatabaseTransaction,
    project: &ProjectId,
    credential: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let affected = || {
        Condition::all()
            .add(Column::ProjectId.eq(project.as_str()))
            .add(Column::CredentialName.eq(credential))
            .add(Column::Status.eq(AuthConnectionStatus::NeedsAuth.as_str()))
    };
    lock(transaction, affected()).await?;
    let rows = auth_connection::Entity::find()
        .filter(affected())
        .all(transaction)
        .await?;
    for row in rows {
        let before = AuthConnectionRow::try_from(row)?;
        let context = ScheduleContext::new(before.settings.health_check_interval, now);
        let change = HealthChange {
            status: before.status,
            health: before.health.after_change(before.status, context),
            check: None,
            before,
        };
        let _ = apply(transaction, change).await?;
    }
    Ok(())
}

/// Stores a change and its events, unless the connection has changed since it was read.
async fn apply(
    transaction: &DatabaseTransaction,
    change: HealthChange,
) -> Result<(Option<AuthConnectionRow>, RecordedEvents), StoreError> {
    let HealthChange {
        before,
        status,
        health,
        check,
    } = change;
    let checked_at = check.as_ref().and_then(|entry| entry.completed_at);
    let after = AuthConnectionRow {
        status,
        last_auth_check_at: checked_at.or(before.last_auth_check_at),
        health: ConnectionHealth {
            revision: before.health.revision + 1,
            ..health
        },
        ..before.clone()
    };
    if !replace(transaction, &after).await? {
        return Ok((None, RecordedEvents::default()));
    }
    if let Some(entry) = &check {
        insert_timeline_entry(transaction, entry).await?;
    }
    let events = record_auth_change(transaction, &before, &after).await?;
    Ok((Some(after), events))
}

/// Replaces the status and the schedule of the row with the number before that of `after`. Returns
/// whether there is one.
async fn replace(
    transaction: &DatabaseTransaction,
    after: &AuthConnectionRow,
) -> Result<bool, StoreError> {
    let changed = after.to_model()?;
    let update = auth_connection::Entity::update_many()
        .col_expr(Column::Status, Expr::value(changed.status.clone()))
        .col_expr(
            Column::LastAuthCheckAt,
            Expr::value(changed.last_auth_check_at),
        );
    let replaced = with_schedule(update, changed).exec(transaction).await?;
    Ok(replaced.rows_affected > 0)
}

/// Adds the schedule of a row to its update, unless another one was stored since the one before.
pub(super) fn with_schedule(
    update: UpdateMany<auth_connection::Entity>,
    changed: auth_connection::Model,
) -> UpdateMany<auth_connection::Entity> {
    update
        .col_expr(Column::CheckAt, Expr::value(changed.check_at))
        .col_expr(Column::FailedChecks, Expr::value(changed.failed_checks))
        .col_expr(Column::ReauthAt, Expr::value(changed.reauth_at))
        .col_expr(Column::ReauthFailures, Expr::value(changed.reauth_failures))
        .col_expr(
            Column::ReauthFailingSince,
            Expr::value(changed.reauth_failing_since),
        )
        .col_expr(Column::ReauthStopped, Expr::value(changed.reauth_stopped))
        .col_expr(Column::SessionCookie, Expr::value(changed.session_cookie))
        .col_expr(
            Column::SessionExpiresAt,
            Expr::value(changed.session_expires_at),
        )
        .col_expr(Column::WarnAt, Expr::value(changed.warn_at))
        .col_expr(Column::HealthRevision, Expr::value(changed.health_revision))
        .filter(Column::Id.eq(changed.id))
        .filter(Column::HealthRevision.eq(changed.health_revision - 1))
}

/// Finds a connection, and keeps others from changing it until the commit.
async fn find(
    transaction: &DatabaseTransaction,
    id: &AuthConnectionId,
) -> Result<Option<AuthConnectionRow>, StoreError> {
    lock(transaction, of_id(id)).await?;
    let found = auth_connection::Entity::find_by_id(id.as_str()).one(transaction);
    found.await?.map(TryInto::try_into).transpose()
}

/// Keeps a connection from being deleted until the commit, in which a login of it begins. One
/// without a person has the number of the schedule in which it was due, and is not due any more.
/// Returns whether there is the connection with that schedule.
pub(in crate::control::store) async fn begin_login(
    transaction: &DatabaseTransaction,
    id: &AuthConnectionId,
    due_in: Option<u64>,
) -> Result<bool, StoreError> {
    let Some(revision) = due_in else {
        return Ok(lock(transaction, of_id(id)).await? > 0);
    };
    let begun = auth_connection::Entity::update_many()
        .col_expr(Column::ReauthAt, Expr::value(None::<i64>))
        .col_expr(
            Column::HealthRevision,
            Expr::col(Column::HealthRevision).add(1),
        )
        .filter(Column::Id.eq(id.as_str()))
        .filter(Column::HealthRevision.eq(revision_column(revision)?))
        .exec(transaction)
        .await?;
    Ok(begun.rows_affected > 0)
}

/// Keeps connections from being changed or deleted until the commit. Returns how many there are.
async fn lock(db: &impl ConnectionTrait, condition: Condition) -> Result<u64, StoreError> {
    // An update without effect locks the rows, unlike a query.
    let locked = auth_connection::Entity::update_many()
        .col_expr(Column::Status, Expr::col(Column::Status))
        .filter(condition)
        .exec(db)
        .await?;
    Ok(locked.rows_affected)
}

fn of_id(id: &AuthConnectionId) -> Condition {
    Condition::all().add(Column::Id.eq(id.as_str()))
}

/// Returns the schedule that the columns of a row stand for.
pub(super) fn of_model(row: &auth_connection::Model) -> Result<ConnectionHealth, StoreError> {
    let time = |column: Option<i64>| column.map(from_millis).transpose();
    let count = |column: i64| u32::try_from(column).map_err(|_| corrupt("count", column));
    let expiry = row.session_cookie.clone().zip(row.session_expires_at);
    let expiry = expiry.map(|(cookie, at)| from_millis(at).map(|at| SessionExpiry { cookie, at }));
    let stopped = row.reauth_stopped.clone();
    let revision = row.health_revision;
    Ok(ConnectionHealth {
        check_at: time(row.check_at)?,
        failed_checks: count(row.failed_checks)?,
        reauth_at: time(row.reauth_at)?,
        reauth_failures: count(row.reauth_failures)?,
        reauth_failing_since: time(row.reauth_failing_since)?,
        reauth_stopped: stopped
            .map(|name| of_name("error code", name))
            .transpose()?,
        expiry: expiry.transpose()?,
        warn_at: time(row.warn_at)?,
        revision: revision
            .try_into()
            .map_err(|_| corrupt("revision", revision))?,
    })
}
