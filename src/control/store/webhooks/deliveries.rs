//! Deliveries of events to webhooks.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, ExprTrait, QueryFilter, QueryOrder,
    QuerySelect, QueryTrait, Select, UpdateMany, sea_query::Expr,
};

use crate::{
    api::{
        ids::{WebhookDeliveryId, WebhookId},
        webhooks::{WebhookDeliveryStatus, WebhookDisabledReason, WebhookPayload},
    },
    control::store::{
        Store, StoreError, corrupt,
        entity::{webhook, webhook_delivery},
        from_millis, to_millis,
    },
};

/// The most rows that one statement deletes, so that other writers wait only for a moment.
const DELETE_BATCH: u64 = 1000;

/// A row of the table of deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDeliveryRow {
    pub id: WebhookDeliveryId,
    pub webhook_id: WebhookId,
    pub event_type: String,
    /// The body of the request, a [`WebhookPayload`].
    pub payload: String,
    pub status: WebhookDeliveryStatus,
    /// The number of attempts that have ended.
    pub attempts: u32,
    /// `None` if there is no further attempt.
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub last_attempt_at: Option<DateTime<Utc>>,
    pub duration_ms: Option<u64>,
    pub response_status: Option<u16>,
    pub response_body: Option<String>,
    pub error: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// An attempt that has ended, and its consequence for the delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookAttempt {
    pub status: WebhookDeliveryStatus,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub ended_at: DateTime<Utc>,
    pub duration_ms: u64,
    pub response_status: Option<u16>,
    pub response_body: Option<String>,
    pub error: Option<String>,
}

/// A page of the deliveries of a webhook, with its filter.
#[derive(Debug, Clone, Copy, Default)]
pub struct WebhookDeliveryListing {
    pub status: Option<WebhookDeliveryStatus>,
    pub offset: u64,
    pub limit: u64,
}

impl WebhookDeliveryRow {
    /// Returns a delivery of which the first attempt is still to be made.
    ///
    /// # Errors
    /// If the payload cannot be written as JSON.
    pub fn new(webhook: &WebhookId, payload: &WebhookPayload) -> Result<Self, StoreError> {
        let text = serde_json::to_string(payload);
        let created_at = payload.created_at.0;
        Ok(WebhookDeliveryRow {
            id: WebhookDeliveryId::generate(),
            webhook_id: webhook.clone(),
            event_type: payload.event_type.clone(),
            payload: text.map_err(|error| corrupt("payload", error))?,
            status: WebhookDeliveryStatus::Pending,
            attempts: 0,
            next_attempt_at: Some(created_at),
            last_attempt_at: None,
            duration_ms: None,
            response_status: None,
            response_body: None,
            error: None,
            created_at,
        })
    }

    /// Returns the delivery after an attempt.
    #[must_use]
    pub fn after(self, attempt: WebhookAttempt) -> Self {
        WebhookDeliveryRow {
            status: attempt.status,
            attempts: self.attempts + 1,
            next_attempt_at: attempt.next_attempt_at,
            last_attempt_at: Some(attempt.ended_at),
            duration_ms: Some(attempt.duration_ms),
            response_status: attempt.response_status,
            response_body: attempt.response_body,
            error: attempt.error,
            ..self
        }
    }

    pub(super) fn to_model(&self) -> webhook_delivery::Model {
        webhook_delivery::Model {
            id: self.id.to_string(),
            webhook_id: self.webhook_id.to_string(),
            event_type: self.event_type.clone(),
            payload: self.payload.clone(),
            status: self.status.as_str().to_owned(),
            attempts: self.attempts.into(),
            next_attempt_at: self.next_attempt_at.map(to_millis),
            last_attempt_at: self.last_attempt_at.map(to_millis),
            duration_millis: self.duration_ms.map(millis_column),
            response_status: self.response_status.map(Into::into),
            response_body: self.response_body.clone(),
            error: self.error.clone(),
            created_at: to_millis(self.created_at),
        }
    }
}

impl TryFrom<webhook_delivery::Model> for WebhookDeliveryRow {
    type Error = StoreError;

    fn try_from(row: webhook_delivery::Model) -> Result<Self, StoreError> {
        let status = WebhookDeliveryStatus::parse(&row.status);
        Ok(WebhookDeliveryRow {
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("delivery id", &row.id))?,
            webhook_id: row
                .webhook_id
                .parse()
                .map_err(|_| corrupt("webhook id", &row.webhook_id))?,
            event_type: row.event_type,
            payload: row.payload,
            status: status.ok_or_else(|| corrupt("delivery status", &row.status))?,
            attempts: natural(row.attempts)?,
            next_attempt_at: row.next_attempt_at.map(from_millis).transpose()?,
            last_attempt_at: row.last_attempt_at.map(from_millis).transpose()?,
            duration_ms: row.duration_millis.map(natural).transpose()?,
            response_status: row.response_status.map(natural).transpose()?,
            response_body: row.response_body,
            error: row.error,
            created_at: from_millis(row.created_at)?,
        })
    }
}

impl Store {
    /// Returns the webhooks that deliveries are due for, disabled ones included.
    pub async fn webhooks_with_due_deliveries(
        &self,
        now: DateTime<Utc>,
    ) -> Result<Vec<WebhookId>, StoreError> {
        let query = with_due_deliveries(now).into_tuple();
        let ids: Vec<String> = query.all(&self.db).await?;
        let parse = |id: String| id.parse().map_err(|_| corrupt("webhook id", id));
        ids.into_iter().map(parse).collect()
    }

    /// Returns up to `limit` deliveries of a webhook that are due, those that have been due for the
    /// longest time first.
    pub async fn due_webhook_deliveries(
        &self,
        webhook: &WebhookId,
        now: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<WebhookDeliveryRow>, StoreError> {
        let rows = due_of(webhook, now).limit(limit).all(&self.db).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Records an attempt at a delivery, unless there was another one since it was read, or there
    /// is no further one. Returns whether it did.
    pub async fn record_webhook_attempt(
        &self,
        delivery: &WebhookDeliveryRow,
        attempt: &WebhookAttempt,
    ) -> Result<bool, StoreError> {
        use webhook_delivery::Column;
        let status = attempt.response_status.map(i64::from);
        let recorded = webhook_delivery::Entity::update_many()
            .col_expr(Column::Status, Expr::value(attempt.status.as_str()))
            .col_expr(
                Column::Attempts,
                Expr::value(i64::from(delivery.attempts) + 1),
            )
            .col_expr(
                Column::NextAttemptAt,
                Expr::value(attempt.next_attempt_at.map(to_millis)),
            )
            .col_expr(
                Column::LastAttemptAt,
                Expr::value(to_millis(attempt.ended_at)),
            )
            .col_expr(
                Column::DurationMillis,
                Expr::value(millis_column(attempt.duration_ms)),
            )
            .col_expr(Column::ResponseStatus, Expr::value(status))
            .col_expr(
                Column::ResponseBody,
                Expr::value(attempt.response_body.clone()),
            )
            .col_expr(Column::Error, Expr::value(attempt.error.clone()))
            .filter(Column::Id.eq(delivery.id.as_str()))
            .filter(Column::Attempts.eq(i64::from(delivery.attempts)))
            .filter(Column::NextAttemptAt.is_not_null())
            .exec(&self.writer)
            .await?;
        Ok(recorded.rows_affected > 0)
    }

    /// Inserts a delivery that has ended already.
    pub async fn add_webhook_delivery(&self, row: &WebhookDeliveryRow) -> Result<(), StoreError> {
        let insert = webhook_delivery::ActiveModel::from(row.to_model()).reset_all();
        webhook_delivery::Entity::insert(insert)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }

    /// Lists deliveries of a webhook, newest first, with one row more than the limit if there are
    /// more.
    pub async fn list_webhook_deliveries(
        &self,
        webhook: &WebhookId,
        listing: WebhookDeliveryListing,
    ) -> Result<Vec<WebhookDeliveryRow>, StoreError> {
        use webhook_delivery::Column;
        let of_status = listing
            .status
            .map(|status| Column::Status.eq(status.as_str()));
        let rows = webhook_delivery::Entity::find()
            .filter(Column::WebhookId.eq(webhook.as_str()))
            .filter(Condition::all().add_option(of_status))
            .order_by_desc(Column::Id)
            .offset(listing.offset)
            .limit(listing.limit + 1)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Ends the deliveries that wait for a webhook, if it is disabled for that reason: those of
    /// events that were recorded while it was being disabled.
    pub async fn fail_deliveries_of_disabled_webhook(
        &self,
        webhook: &WebhookId,
        reason: WebhookDisabledReason,
    ) -> Result<(), StoreError> {
        let disabled = webhook::Entity::find()
            .select_only()
            .column(webhook::Column::Id)
            .filter(webhook::Column::DisabledReason.eq(reason.as_str()))
            .into_query();
        fail_waiting(webhook, reason)
            .filter(webhook_delivery::Column::WebhookId.in_subquery(disabled))
            .exec(&self.writer)
            .await?;
        Ok(())
    }

    /// Deletes the deliveries of a webhook.
    pub async fn delete_webhook_deliveries(&self, webhook: &WebhookId) -> Result<(), StoreError> {
        let of_webhook = webhook_delivery::Column::WebhookId.eq(webhook.as_str());
        self.delete_deliveries(Condition::all().add(of_webhook))
            .await?;
        Ok(())
    }

    /// Deletes the deliveries that have ended and were created before `before`. Returns how many.
    pub async fn purge_webhook_deliveries(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let is_old = Condition::all()
            .add(webhook_delivery::Column::NextAttemptAt.is_null())
            .add(webhook_delivery::Column::CreatedAt.lt(to_millis(before)));
        self.delete_deliveries(is_old).await
    }

    /// Deletes all but the newest `kept` deliveries of each webhook that have ended, and all of
    /// webhooks that do not exist. Returns how many.
    pub async fn trim_webhook_deliveries(&self, kept: u64) -> Result<u64, StoreError> {
        use webhook_delivery::Column;
        let webhooks: Vec<String> = webhook::Entity::find()
            .select_only()
            .column(webhook::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?;
        let existing = webhook::Entity::find()
            .select_only()
            .column(webhook::Column::Id)
            .into_query();
        let is_orphan = Condition::all().add(Column::WebhookId.not_in_subquery(existing));
        let mut count = self.delete_deliveries(is_orphan).await?;
        for webhook in webhooks {
            let has_ended = Condition::all()
                .add(Column::WebhookId.eq(webhook))
                .add(Column::NextAttemptAt.is_null());
            let newest_removed: Option<String> = webhook_delivery::Entity::find()
                .select_only()
                .column(Column::Id)
                .filter(has_ended.clone())
                .order_by_desc(Column::Id)
                .offset(kept)
                .limit(1)
                .into_tuple()
                .one(&self.db)
                .await?;
            if let Some(id) = newest_removed {
                count += self
                    .delete_deliveries(has_ended.add(Column::Id.lte(id)))
                    .await?;
            }
        }
        Ok(count)
    }

    async fn delete_deliveries(&self, condition: Condition) -> Result<u64, StoreError> {
        let mut count = 0;
        loop {
            let ids: Vec<String> = webhook_delivery::Entity::find()
                .select_only()
                .column(webhook_delivery::Column::Id)
                .filter(condition.clone())
                .limit(DELETE_BATCH)
                .into_tuple()
                .all(&self.db)
                .await?;
            if ids.is_empty() {
                return Ok(count);
            }
            let deleted = webhook_delivery::Entity::delete_many()
                .filter(webhook_delivery::Column::Id.is_in(ids))
                .exec(&self.writer)
                .await?;
            count += deleted.rows_affected;
        }
    }
}

/// Selects the ids of the webhooks that deliveries are due for.
pub(super) fn with_due_deliveries(now: DateTime<Utc>) -> Select<webhook::Entity> {
    let is_of_webhook = Expr::col((
        webhook_delivery::Entity,
        webhook_delivery::Column::WebhookId,
    ))
    .equals((webhook::Entity, webhook::Column::Id));
    let due = webhook_delivery::Entity::find()
        .select_only()
        .column(webhook_delivery::Column::WebhookId)
        .filter(is_of_webhook)
        .filter(webhook_delivery::Column::NextAttemptAt.lte(to_millis(now)))
        .into_query();
    // SQLite would read a whole index for the distinct webhooks of the deliveries that are due.
    webhook::Entity::find()
        .select_only()
        .column(webhook::Column::Id)
        .filter(Expr::exists(due))
}

/// Selects the deliveries of a webhook that are due, those that have been due for the longest time
/// first.
pub(super) fn due_of(webhook: &WebhookId, now: DateTime<Utc>) -> Select<webhook_delivery::Entity> {
    webhook_delivery::Entity::find()
        .filter(webhook_delivery::Column::WebhookId.eq(webhook.as_str()))
        .filter(webhook_delivery::Column::NextAttemptAt.lte(to_millis(now)))
        .order_by_asc(webhook_delivery::Column::NextAttemptAt)
}

/// Returns the update that ends the deliveries which wait for a webhook that is disabled. It
/// changes about [`super::events::MAX_PENDING`] rows at most.
pub(super) fn fail_waiting(
    webhook: &WebhookId,
    reason: WebhookDisabledReason,
) -> UpdateMany<webhook_delivery::Entity> {
    use webhook_delivery::Column;
    let failed = WebhookDeliveryStatus::Failed.as_str();
    let error = match reason {
        WebhookDisabledReason::Request => "the webhook is disabled",
        WebhookDisabledReason::Gone => "the webhook is disabled: its endpoint responded 410",
    };
    webhook_delivery::Entity::update_many()
        .col_expr(Column::Status, Expr::value(failed))
        .col_expr(Column::NextAttemptAt, Expr::value(None::<i64>))
        .col_expr(Column::Error, Expr::value(error))
        .filter(Column::WebhookId.eq(webhook.as_str()))
        .filter(Column::NextAttemptAt.is_not_null())
}

fn natural<T: TryFrom<i64>>(value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt("delivery", value))
}

fn millis_column(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
