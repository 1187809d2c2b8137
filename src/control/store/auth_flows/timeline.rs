//! The timeline of auth connections: what has happened to each.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect, Select,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::AuthFlowRow;
use crate::{
    api::{
        auth_connections::{AuthEventStatus, AuthEventType},
        auth_flow::{FlowErrorCode, FlowStatus, FlowStep, FlowType},
        ids::{AuthConnectionId, AuthTimelineId, BrowserId, FlowId, ReplayId},
    },
    control::{
        auth_connections::flow::{Flow, FlowTimelineEntry},
        store::{
            Store, StoreError, corrupt,
            entity::auth_timeline_entry::{self, Column},
            from_millis, to_millis,
        },
    },
};

/// An entry of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthTimelineRow {
    pub id: AuthTimelineId,
    pub connection_id: AuthConnectionId,
    pub event_type: AuthEventType,
    /// The login flow. `None` for a health check.
    pub flow_id: Option<FlowId>,
    pub status: AuthEventStatus,
    pub previous_status: Option<AuthEventStatus>,
    pub step: Option<FlowStep>,
    pub error_code: Option<FlowErrorCode>,
    pub website_error: Option<String>,
    pub browser_id: Option<BrowserId>,
    pub replay_id: Option<ReplayId>,
    pub created_at: DateTime<Utc>,
    /// The time at which the flow or the health check has ended.
    pub completed_at: Option<DateTime<Utc>>,
}

/// A page of the timeline of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuthTimelineListing {
    pub event_type: Option<AuthEventType>,
    pub offset: u64,
    pub limit: u64,
}

impl AuthTimelineRow {
    /// Returns the entry about the new step of a flow.
    pub(super) fn of_flow(
        row: &AuthFlowRow,
        before: Option<&Flow>,
        entry: &FlowTimelineEntry,
    ) -> AuthTimelineRow {
        let has_ended = entry.status != FlowStatus::InProgress;
        AuthTimelineRow {
            id: AuthTimelineId::generate(),
            connection_id: row.connection_id.clone(),
            event_type: match row.flow.settings().flow_type {
                FlowType::Login => AuthEventType::Login,
                FlowType::Reauth => AuthEventType::Reauth,
            },
            flow_id: Some(row.id().clone()),
            status: entry.status.into(),
            previous_status: before.map(|flow| flow.status().into()),
            step: Some(entry.step),
            error_code: entry.error_code,
            website_error: entry.website_error.clone(),
            browser_id: row.flow.browser().cloned(),
            replay_id: row.replay_id.clone(),
            created_at: entry.timestamp,
            completed_at: has_ended.then_some(entry.timestamp),
        }
    }

    fn to_model(&self) -> Result<auth_timeline_entry::Model, StoreError> {
        Ok(auth_timeline_entry::Model {
            id: self.id.to_string(),
            connection_id: self.connection_id.to_string(),
            event_type: name_of(self.event_type)?,
            flow_id: self.flow_id.as_ref().map(FlowId::to_string),
            status: name_of(self.status)?,
            previous_status: self.previous_status.map(name_of).transpose()?,
            step: self.step.map(name_of).transpose()?,
            error_code: self.error_code.map(name_of).transpose()?,
            website_error: self.website_error.clone(),
            browser_id: self.browser_id.as_ref().map(BrowserId::to_string),
            replay_id: self.replay_id.as_ref().map(ReplayId::to_string),
            created_at: to_millis(self.created_at),
            completed_at: self.completed_at.map(to_millis),
        })
    }
}

impl TryFrom<auth_timeline_entry::Model> for AuthTimelineRow {
    type Error = StoreError;

    fn try_from(row: auth_timeline_entry::Model) -> Result<Self, StoreError> {
        let previous = row.previous_status;
        Ok(AuthTimelineRow {
            id: id_of("timeline id", row.id)?,
            connection_id: id_of("auth connection id", row.connection_id)?,
            event_type: of_name("type of an event", row.event_type)?,
            flow_id: row.flow_id.map(|id| id_of("flow id", id)).transpose()?,
            status: of_name("status", row.status)?,
            previous_status: previous.map(|name| of_name("status", name)).transpose()?,
            step: row.step.map(|name| of_name("step", name)).transpose()?,
            error_code: row
                .error_code
                .map(|name| of_name("error code", name))
                .transpose()?,
            website_error: row.website_error,
            browser_id: row
                .browser_id
                .map(|id| id_of("browser id", id))
                .transpose()?,
            replay_id: row.replay_id.map(|id| id_of("replay id", id)).transpose()?,
            created_at: from_millis(row.created_at)?,
            completed_at: row.completed_at.map(from_millis).transpose()?,
        })
    }
}

impl Store {
    /// Returns the timeline of a connection, newest first, with one entry more than the limit if
    /// there are more.
    pub async fn auth_timeline(
        &self,
        connection: &AuthConnectionId,
        listing: AuthTimelineListing,
    ) -> Result<Vec<AuthTimelineRow>, StoreError> {
        let rows = page_of(connection, listing)?.all(&self.db).await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Deletes the entries from before a time. Returns how many.
    pub async fn purge_auth_timeline(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let purged = auth_timeline_entry::Entity::delete_many()
            .filter(Column::CreatedAt.lt(to_millis(before)))
            .exec(&self.writer)
            .await?;
        Ok(purged.rows_affected)
    }
}

/// Returns the query of a page, with one row more than its limit.
pub(super) fn page_of(
    connection: &AuthConnectionId,
    listing: AuthTimelineListing,
) -> Result<Select<auth_timeline_entry::Entity>, StoreError> {
    let mut query =
        auth_timeline_entry::Entity::find().filter(Column::ConnectionId.eq(connection.as_str()));
    if let Some(event_type) = listing.event_type {
        query = query.filter(Column::EventType.eq(name_of(event_type)?));
    }
    Ok(query
        .order_by_desc(Column::CreatedAt)
        .order_by_desc(Column::Id)
        .offset(listing.offset)
        .limit(listing.limit + 1))
}

pub(in crate::control::store) async fn insert(
    transaction: &DatabaseTransaction,
    row: &AuthTimelineRow,
) -> Result<(), StoreError> {
    let row = auth_timeline_entry::ActiveModel::from(row.to_model()?).reset_all();
    auth_timeline_entry::Entity::insert(row)
        .exec_without_returning(transaction)
        .await?;
    Ok(())
}

pub(super) async fn delete_of(
    transaction: &DatabaseTransaction,
    connection: &AuthConnectionId,
) -> Result<(), StoreError> {
    auth_timeline_entry::Entity::delete_many()
        .filter(Column::ConnectionId.eq(connection.as_str()))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Returns the name of a value in the API, which is also that in the database.
pub(in crate::control::store) fn name_of(value: impl Serialize) -> Result<String, StoreError> {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => Ok(name),
        other => Err(corrupt("name", format!("{other:?}"))),
    }
}

pub(in crate::control::store) fn of_name<T: DeserializeOwned>(
    field: &'static str,
    name: String,
) -> Result<T, StoreError> {
    let value = serde_json::from_value(Value::String(name.clone()));
    value.map_err(|_| corrupt(field, name))
}

fn id_of<T: TryFrom<String>>(field: &'static str, id: String) -> Result<T, StoreError> {
    T::try_from(id.clone()).map_err(|_| corrupt(field, id))
}
