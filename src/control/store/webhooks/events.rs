//! Records the events of state changes, in their transactions, as deliveries to the webhooks that
//! are subscribed to them. So an event is delivered if and only if its change is committed.

use chrono::Utc;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter,
    QuerySelect,
};

use super::{WebhookDeliveryRow, event_names};
use crate::{
    api::{
        auth_connections::AuthConnectionStatus,
        auth_flow::FlowStatus,
        ids::{BrowserId, ProfileId, ProjectId, ReplayId, WebhookEventId, WebhookId},
        webhooks::{
            ChangedAuthConnection, EndedBrowser, EndedLogin, EndedReplay, SavedProfile,
            StartedBrowser, UnsavedProfile, WebhookEventData, WebhookEventType, WebhookPayload,
        },
    },
    control::{
        replays::state::State,
        store::{
            AuthConnectionRow, AuthFlowRow, ReplayRow, Store, StoreError, corrupt,
            entity::{auth_connection, browser, profile, replay, webhook, webhook_delivery},
            from_millis,
            replays::to_row,
        },
    },
};

/// The most deliveries of a webhook that wait for an attempt. Further events are dropped.
pub(super) const MAX_PENDING: u64 = 10_000;

/// Whether a transaction has recorded deliveries, which begin when it is committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub(in crate::control::store) struct RecordedEvents(bool);

impl RecordedEvents {
    /// Returns whether one of two parts of a transaction has recorded deliveries.
    pub(in crate::control::store) fn and(self, other: RecordedEvents) -> RecordedEvents {
        RecordedEvents(self.0 || other.0)
    }
}

impl Store {
    /// Commits a transaction, and makes this process deliver the events that it has recorded.
    pub(in crate::control::store) async fn commit_with_events(
        &self,
        transaction: DatabaseTransaction,
        RecordedEvents(is_recorded): RecordedEvents,
    ) -> Result<(), StoreError> {
        transaction.commit().await?;
        if is_recorded {
            self.new_deliveries.notify_one();
        }
        Ok(())
    }

    /// Resolves when this process has recorded deliveries since the last call.
    pub async fn deliveries_recorded(&self) {
        self.new_deliveries.notified().await;
    }
}

/// Records that a browser is active.
pub(in crate::control::store) async fn record_browser_created(
    transaction: &DatabaseTransaction,
    id: &BrowserId,
) -> Result<RecordedEvents, StoreError> {
    if !has_subscribers(transaction, WebhookEventType::BrowserCreated).await? {
        return Ok(RecordedEvents::default());
    }
    let Some(row) = find_browser(transaction, id).await? else {
        return Ok(RecordedEvents::default());
    };
    let project = project_id(&row.project_id)?;
    let data = WebhookEventData::BrowserCreated(started_browser(row)?);
    record(transaction, &project, &data).await
}

/// Records that a browser is not active any more.
pub(in crate::control::store) async fn record_browser_ended(
    transaction: &DatabaseTransaction,
    id: &BrowserId,
) -> Result<RecordedEvents, StoreError> {
    if !has_subscribers(transaction, WebhookEventType::BrowserEnded).await? {
        return Ok(RecordedEvents::default());
    }
    let Some(row) = find_browser(transaction, id).await? else {
        return Ok(RecordedEvents::default());
    };
    let (reason, deleted_at) = row.end_reason.clone().zip(row.deleted_at).ok_or_else(|| {
        // The update before has written both.
        corrupt("end of a browser", &row.id)
    })?;
    let project = project_id(&row.project_id)?;
    let data = WebhookEventData::BrowserEnded(EndedBrowser {
        browser: started_browser(row)?,
        reason,
        deleted_at: from_millis(deleted_at)?.into(),
    });
    record(transaction, &project, &data).await
}

/// Records that a browser was saved as a version of a profile.
pub(in crate::control::store) async fn record_profile_saved(
    transaction: &DatabaseTransaction,
    project: &str,
    saved: SavedProfile,
) -> Result<RecordedEvents, StoreError> {
    let data = WebhookEventData::BrowserProfileSaved(saved);
    record(transaction, &project_id(project)?, &data).await
}

/// Records that an ending browser was not saved.
pub(in crate::control::store) async fn record_profile_not_saved(
    transaction: &DatabaseTransaction,
    profile: &ProfileId,
    browser: &BrowserId,
    reason: &str,
) -> Result<RecordedEvents, StoreError> {
    let row = profile::Entity::find_by_id(profile.as_str())
        .one(transaction)
        .await?;
    let Some(row) = row else {
        return Ok(RecordedEvents::default());
    };
    let data = WebhookEventData::BrowserProfileSaveFailed(UnsavedProfile {
        session_id: browser.clone(),
        profile_id: profile.clone(),
        reason: reason.to_owned(),
    });
    record(transaction, &project_id(&row.project_id)?, &data).await
}

/// Records that the file of a replay is stored or lost, if that is its new state.
pub(in crate::control::store) async fn record_replay_moved(
    transaction: &DatabaseTransaction,
    id: &ReplayId,
    state: State,
) -> Result<RecordedEvents, StoreError> {
    let event: fn(EndedReplay) -> WebhookEventData = match state {
        State::Stored => WebhookEventData::ReplayStored,
        State::Lost => WebhookEventData::ReplayLost,
        State::Recording | State::Finished => return Ok(RecordedEvents::default()),
    };
    let row = replay::Entity::find_by_id(id.as_str())
        .one(transaction)
        .await?;
    let Some(row) = row else {
        return Ok(RecordedEvents::default());
    };
    let ReplayRow {
        id,
        project_id,
        browser_id,
        started_at,
        end,
        ..
    } = to_row(row)?;
    let data = event(EndedReplay {
        replay_id: id,
        session_id: browser_id,
        started_at: started_at.into(),
        finished_at: end.finished_at.map(Into::into),
        end_reason: end.reason,
        duration_ms: end.duration_ms,
        size_bytes: end.size_bytes,
    });
    record(transaction, &project_id, &data).await
}

/// Records that a login of an auth connection has ended.
pub(in crate::control::store) async fn record_login_ended(
    transaction: &DatabaseTransaction,
    row: &AuthFlowRow,
) -> Result<RecordedEvents, StoreError> {
    let flow = &row.flow;
    let event: fn(EndedLogin) -> WebhookEventData = match flow.status() {
        FlowStatus::Success => WebhookEventData::AuthLoginSucceeded,
        _ => WebhookEventData::AuthLoginFailed,
    };
    let connection = auth_connection::Entity::find_by_id(row.connection_id.as_str())
        .one(transaction)
        .await?;
    let Some(connection) = connection else {
        return Ok(RecordedEvents::default());
    };
    let data = event(EndedLogin {
        connection_id: row.connection_id.clone(),
        domain: connection.domain,
        profile_name: connection.profile_name,
        flow_id: flow.id().clone(),
        flow_type: flow.settings().flow_type,
        flow_status: flow.status(),
        error_code: flow.error_code(),
        session_id: flow.browser().cloned(),
    });
    record(transaction, &row.project_id, &data).await
}

/// Records the events that follow from a change of the status or of the schedule of a connection.
pub(in crate::control::store) async fn record_auth_change(
    transaction: &DatabaseTransaction,
    before: &AuthConnectionRow,
    after: &AuthConnectionRow,
) -> Result<RecordedEvents, StoreError> {
    use AuthConnectionStatus::{Authenticated, NeedsAuth};
    let (old, new) = (&before.health, &after.health);
    let was_warned = old.warn_at.is_some() && new.warn_at.is_none() && old.expiry == new.expiry;
    let is_given_up = old.reauth_stopped.is_none() && new.reauth_stopped.is_some();
    // The first login has no failure before it.
    let had_login = before.last_auth_at.is_some();
    let mut events: Vec<fn(ChangedAuthConnection) -> WebhookEventData> = Vec::new();
    match (before.status, after.status) {
        (Authenticated, NeedsAuth) => events.push(WebhookEventData::AuthNeedsAuth),
        (NeedsAuth, Authenticated) if had_login => events.push(WebhookEventData::AuthRecovered),
        _ => {}
    }
    if is_given_up {
        events.push(WebhookEventData::AuthReauthStopped);
    }
    if was_warned {
        events.push(WebhookEventData::AuthExpiresSoon);
    }
    let mut recorded = RecordedEvents::default();
    for event in events {
        let data = event(ChangedAuthConnection {
            connection_id: after.id.clone(),
            domain: after.domain.clone(),
            profile_name: after.profile_name.clone(),
            status: after.status,
            error_code: new.reauth_stopped.filter(|_| is_given_up),
            session_expires_at: new.expiry.as_ref().map(|expiry| expiry.at.into()),
        });
        recorded = recorded.and(record(transaction, &after.project_id, &data).await?);
    }
    Ok(recorded)
}

/// Records an event of a project as a delivery to each webhook that is subscribed to it.
pub(in crate::control::store) async fn record(
    transaction: &DatabaseTransaction,
    project: &ProjectId,
    data: &WebhookEventData,
) -> Result<RecordedEvents, StoreError> {
    let subscribers = subscribers(transaction, data.event_type()).await?;
    if subscribers.is_empty() {
        return Ok(RecordedEvents::default());
    }
    let json = serde_json::to_value(data);
    let payload = WebhookPayload {
        id: WebhookEventId::generate(),
        event_type: data.event_type().as_str().to_owned(),
        created_at: Utc::now().into(),
        project_id: Some(project.clone()),
        data: json.map_err(|error| corrupt("event", error))?,
    };
    let mut rows = Vec::new();
    for webhook in &subscribers {
        if has_room(transaction, webhook).await? {
            let row = WebhookDeliveryRow::new(webhook, &payload)?;
            rows.push(webhook_delivery::ActiveModel::from(row.to_model()).reset_all());
        } else {
            let event = data.event_type().as_str();
            tracing::warn!(%webhook, event, "dropped an event: too many deliveries are waiting");
            metrics::counter!("berth_webhook_deliveries_total", "outcome" => "dropped")
                .increment(1);
        }
    }
    if rows.is_empty() {
        return Ok(RecordedEvents::default());
    }
    webhook_delivery::Entity::insert_many(rows)
        .exec_without_returning(transaction)
        .await?;
    Ok(RecordedEvents(true))
}

async fn has_subscribers(
    db: &impl ConnectionTrait,
    event: WebhookEventType,
) -> Result<bool, StoreError> {
    Ok(!subscribers(db, event).await?.is_empty())
}

/// Returns the enabled webhooks that receive an event.
async fn subscribers(
    db: &impl ConnectionTrait,
    event: WebhookEventType,
) -> Result<Vec<WebhookId>, StoreError> {
    let rows: Vec<(String, String)> = webhook::Entity::find()
        .select_only()
        .column(webhook::Column::Id)
        .column(webhook::Column::Events)
        .filter(webhook::Column::DisabledReason.is_null())
        .into_tuple()
        .all(db)
        .await?;
    let subscribed = rows.into_iter().filter(|(_, events)| {
        let mut names = event_names(events);
        names.any(|name| name == event.as_str())
    });
    let parse = |(id, _): (String, _)| id.parse().map_err(|_| corrupt("webhook id", id));
    subscribed.map(parse).collect()
}

/// Returns whether a webhook has fewer than the most deliveries that may wait.
async fn has_room(db: &impl ConnectionTrait, webhook: &WebhookId) -> Result<bool, StoreError> {
    let last: Option<String> = webhook_delivery::Entity::find()
        .select_only()
        .column(webhook_delivery::Column::Id)
        .filter(webhook_delivery::Column::WebhookId.eq(webhook.as_str()))
        .filter(webhook_delivery::Column::NextAttemptAt.is_not_null())
        .offset(MAX_PENDING - 1)
        .limit(1)
        .into_tuple()
        .one(db)
        .await?;
    Ok(last.is_none())
}

async fn find_browser(
    db: &impl ConnectionTrait,
    id: &BrowserId,
) -> Result<Option<browser::Model>, StoreError> {
    Ok(browser::Entity::find_by_id(id.as_str()).one(db).await?)
}

fn started_browser(row: browser::Model) -> Result<StartedBrowser, StoreError> {
    let pool = row.pool_id.map(|id| id.parse());
    let profile = row.profile_id.map(|id| id.parse());
    Ok(StartedBrowser {
        session_id: row.id.parse().map_err(|_| corrupt("browser id", &row.id))?,
        name: row.name,
        headless: row.headless,
        pool_id: pool.transpose().map_err(|_| corrupt("pool id", &row.id))?,
        profile_id: profile
            .transpose()
            .map_err(|_| corrupt("profile id", &row.id))?,
        created_at: from_millis(row.created_at)?.into(),
    })
}

fn project_id(text: &str) -> Result<ProjectId, StoreError> {
    text.parse().map_err(|_| corrupt("project id", text))
}
