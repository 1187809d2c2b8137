//! The tables of webhooks and of the deliveries to them.
//!
//! [`events`] records deliveries in the transactions of the state changes that they are about,
//! [`deliveries`] reads and writes them.
//!
//! A process that delivers to a webhook claims it for a while. So a webhook gets no more deliveries
//! at once than one process makes, and none twice, while no process dies and their clocks differ by
//! a few seconds at most.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, TransactionTrait, sea_query::Expr,
};

use super::{
    Store, StoreError, corrupt, entity::webhook, from_millis, projects::lock_organization,
    revision_column, to_millis,
};
use crate::api::{
    ids::WebhookId,
    webhooks::{WebhookDisabledReason, WebhookEventType},
};

mod deliveries;
pub(super) mod events;
#[cfg(test)]
mod tests;

use deliveries::fail_waiting;
pub use deliveries::{WebhookAttempt, WebhookDeliveryListing, WebhookDeliveryRow};

/// A row of the table of webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRow {
    pub id: WebhookId,
    pub url: String,
    pub events: Vec<WebhookEventType>,
    /// `None` if it receives events.
    pub disabled_reason: Option<WebhookDisabledReason>,
    /// Grows with each change.
    pub revision: u64,
    /// The revision in which the secret was sealed.
    pub secret_revision: u64,
    pub secret_key_version: u32,
    pub sealed_secret: Vec<u8>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The result of creating a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateWebhookOutcome {
    Created,
    /// The limit is reached.
    LimitReached,
}

/// The result of claiming a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookClaim {
    Claimed(Box<WebhookRow>),
    /// Another process has claimed it.
    Held,
    Disabled(WebhookDisabledReason),
    NotFound,
}

impl TryFrom<webhook::Model> for WebhookRow {
    type Error = StoreError;

    fn try_from(row: webhook::Model) -> Result<Self, StoreError> {
        let natural = |number: i64| u64::try_from(number).map_err(|_| corrupt("revision", number));
        let reason = row.disabled_reason.map(|reason| {
            let parsed = WebhookDisabledReason::parse(&reason);
            parsed.ok_or_else(|| corrupt("reason", reason))
        });
        Ok(WebhookRow {
            id: row.id.parse().map_err(|_| corrupt("webhook id", &row.id))?,
            url: row.url,
            // A later program may know more of them.
            events: event_names(&row.events)
                .filter_map(WebhookEventType::parse)
                .collect(),
            disabled_reason: reason.transpose()?,
            revision: natural(row.revision)?,
            secret_revision: natural(row.secret_revision)?,
            secret_key_version: row
                .secret_key_version
                .try_into()
                .map_err(|_| corrupt("key version", row.secret_key_version))?,
            sealed_secret: row.sealed_secret,
            created_at: from_millis(row.created_at)?,
            updated_at: from_millis(row.updated_at)?,
        })
    }
}

impl Store {
    /// Creates a webhook, if there are fewer than `limit`.
    pub async fn create_webhook(
        &self,
        row: &WebhookRow,
        limit: u64,
    ) -> Result<CreateWebhookOutcome, StoreError> {
        let insert = webhook::Model {
            id: row.id.to_string(),
            url: row.url.clone(),
            events: events_text(&row.events),
            disabled_reason: row.disabled_reason.map(|reason| reason.as_str().to_owned()),
            revision: revision_column(row.revision)?,
            secret_revision: revision_column(row.secret_revision)?,
            secret_key_version: row.secret_key_version.into(),
            sealed_secret: row.sealed_secret.clone(),
            claimed_by: None,
            claimed_until: None,
            created_at: to_millis(row.created_at),
            updated_at: to_millis(row.updated_at),
        };
        let transaction = self.writer.begin().await?;
        // Until the commit, no other webhook is created.
        lock_organization(&transaction).await?;
        if webhook::Entity::find().count(&transaction).await? >= limit {
            return Ok(CreateWebhookOutcome::LimitReached);
        }
        let insert = webhook::ActiveModel::from(insert).reset_all();
        webhook::Entity::insert(insert)
            .exec_without_returning(&transaction)
            .await?;
        transaction.commit().await?;
        Ok(CreateWebhookOutcome::Created)
    }

    /// Finds a webhook by its id.
    pub async fn find_webhook(&self, id: &WebhookId) -> Result<Option<WebhookRow>, StoreError> {
        let found = webhook::Entity::find_by_id(id.as_str()).one(&self.db);
        found.await?.map(TryInto::try_into).transpose()
    }

    /// Lists webhooks, newest first, with one row more than the limit if there are more.
    pub async fn list_webhooks(
        &self,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<WebhookRow>, StoreError> {
        let rows = webhook::Entity::find()
            .order_by_desc(webhook::Column::Id)
            .offset(offset)
            .limit(limit + 1)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Replaces the changeable columns of a webhook that has the revision before that of `row`, and
    /// ends the deliveries that wait for it if it is disabled then. Returns whether there is one.
    pub async fn update_webhook(&self, row: &WebhookRow) -> Result<bool, StoreError> {
        use webhook::Column;
        let reason = row.disabled_reason.map(WebhookDisabledReason::as_str);
        let key_version = i64::from(row.secret_key_version);
        let transaction = self.writer.begin().await?;
        let updated = webhook::Entity::update_many()
            .col_expr(Column::Url, Expr::value(row.url.as_str()))
            .col_expr(Column::Events, Expr::value(events_text(&row.events)))
            .col_expr(Column::DisabledReason, Expr::value(reason))
            .col_expr(
                Column::Revision,
                Expr::value(revision_column(row.revision)?),
            )
            .col_expr(
                Column::SecretRevision,
                Expr::value(revision_column(row.secret_revision)?),
            )
            .col_expr(Column::SecretKeyVersion, Expr::value(key_version))
            .col_expr(
                Column::SealedSecret,
                Expr::value(row.sealed_secret.as_slice()),
            )
            .col_expr(Column::UpdatedAt, Expr::value(to_millis(row.updated_at)))
            .filter(Column::Id.eq(row.id.as_str()))
            .filter(Column::Revision.eq(revision_column(row.revision)? - 1))
            .exec(&transaction)
            .await?;
        if updated.rows_affected == 0 {
            return Ok(false);
        }
        if let Some(reason) = row.disabled_reason {
            fail_waiting(&row.id, reason).exec(&transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Deletes a webhook, but not its deliveries, which are too many for one transaction. Returns
    /// whether there was one.
    pub async fn delete_webhook(&self, id: &WebhookId) -> Result<bool, StoreError> {
        let deleted = webhook::Entity::delete_by_id(id.as_str())
            .exec(&self.writer)
            .await?;
        Ok(deleted.rows_affected > 0)
    }

    /// Makes `holder` the process that delivers to a webhook, until `until` or longer if it claims
    /// the webhook again, unless another process is that.
    pub async fn claim_webhook(
        &self,
        id: &WebhookId,
        holder: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<WebhookClaim, StoreError> {
        use webhook::Column;
        let is_free = Condition::any()
            .add(Column::ClaimedUntil.is_null())
            .add(Column::ClaimedUntil.lt(to_millis(now)))
            .add(Column::ClaimedBy.eq(holder));
        let claimed = webhook::Entity::update_many()
            .col_expr(Column::ClaimedBy, Expr::value(holder))
            .col_expr(Column::ClaimedUntil, Expr::value(to_millis(until)))
            .filter(Column::Id.eq(id.as_str()))
            .filter(Column::DisabledReason.is_null())
            .filter(is_free)
            .exec(&self.writer)
            .await?;
        let Some(row) = self.find_webhook(id).await? else {
            return Ok(WebhookClaim::NotFound);
        };
        Ok(match row.disabled_reason {
            Some(reason) => WebhookClaim::Disabled(reason),
            None if claimed.rows_affected > 0 => WebhookClaim::Claimed(Box::new(row)),
            None => WebhookClaim::Held,
        })
    }

    /// Ends the claim of a process.
    pub async fn release_webhook(&self, id: &WebhookId, holder: &str) -> Result<(), StoreError> {
        use webhook::Column;
        webhook::Entity::update_many()
            .col_expr(Column::ClaimedBy, Expr::value(None::<String>))
            .col_expr(Column::ClaimedUntil, Expr::value(None::<i64>))
            .filter(Column::Id.eq(id.as_str()))
            .filter(Column::ClaimedBy.eq(holder))
            .exec(&self.writer)
            .await?;
        Ok(())
    }
}

fn event_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ')
}

fn events_text(events: &[WebhookEventType]) -> String {
    let names: Vec<&str> = events.iter().map(|event| event.as_str()).collect();
    names.join(" ")
}
