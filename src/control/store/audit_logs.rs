//! The table of the audit log.

use chrono::{DateTime, Utc};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect, sea_query::OnConflict,
};

use super::{Store, StoreError, corrupt, entity::audit_log, from_millis, search, to_millis};
use crate::{
    api::audit_logs::{AuditLogFilter, AuditLogPosition, AuthStrategy, MethodName, ServiceName},
    control::audit::AuditRecord,
};

/// The most rows that one statement deletes, so that other writers wait only for a moment.
const PURGE_BATCH: u64 = 1000;

fn natural<T: TryFrom<i64>>(value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt("audit log", value))
}

impl TryFrom<audit_log::Model> for AuditRecord {
    type Error = StoreError;

    fn try_from(row: audit_log::Model) -> Result<Self, StoreError> {
        let strategy = row.auth_strategy.parse::<AuthStrategy>();
        let key = row.api_key_id.as_deref().map(str::parse).transpose();
        let project = row.project_id.as_deref().map(str::parse).transpose();
        Ok(AuditRecord {
            time: from_millis(row.created_at)?,
            method: row.method,
            path: row.path,
            route: row.route,
            service: row.service,
            status: natural(row.status.into())?,
            duration_ms: natural(row.duration_millis)?,
            client_ip: row.client_ip,
            user_agent: row.user_agent,
            domain: row.domain,
            auth_strategy: strategy.map_err(|_| corrupt("auth strategy", &row.auth_strategy))?,
            user_id: row.user_id,
            api_key_id: key.map_err(|_| corrupt("key id", format!("{:?}", row.api_key_id)))?,
            project_id: project
                .map_err(|_| corrupt("project id", format!("{:?}", row.project_id)))?,
            request_id: row.request_id,
            action: row.action,
            resource: row.resource,
            id: row
                .id
                .parse()
                .map_err(|_| corrupt("audit log id", &row.id))?,
        })
    }
}

fn to_model(record: &AuditRecord) -> audit_log::Model {
    audit_log::Model {
        id: record.id.to_string(),
        created_at: to_millis(record.time),
        method: record.method.clone(),
        path: record.path.clone(),
        route: record.route.clone(),
        service: record.service.clone(),
        status: record.status.into(),
        duration_millis: i64::try_from(record.duration_ms).unwrap_or(i64::MAX),
        client_ip: record.client_ip.clone(),
        user_agent: record.user_agent.clone(),
        domain: record.domain.clone(),
        auth_strategy: record.auth_strategy.as_str().to_owned(),
        user_id: record.user_id.clone(),
        api_key_id: record.api_key_id.as_ref().map(ToString::to_string),
        project_id: record.project_id.as_ref().map(ToString::to_string),
        request_id: record.request_id.clone(),
        action: record.action.clone(),
        resource: record.resource.clone(),
    }
}

impl Store {
    /// Inserts records, all or none. Those that are stored already stay as they are, so that an
    /// attempt with an unknown outcome can be repeated.
    pub async fn insert_audit_records(&self, records: &[AuditRecord]) -> Result<(), StoreError> {
        let rows = records
            .iter()
            .map(|record| to_model(record).into_active_model().reset_all());
        let skip_stored = OnConflict::column(audit_log::Column::Id)
            .do_nothing()
            .to_owned();
        audit_log::Entity::insert_many(rows)
            .on_conflict(skip_stored)
            .exec_without_returning(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns up to `limit` records that match the filter, newest first, from `position` on.
    pub async fn audit_records(
        &self,
        filter: &AuditLogFilter,
        position: Option<&AuditLogPosition>,
        limit: u64,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        use audit_log::Column;
        let mut query = audit_log::Entity::find()
            .filter(Column::CreatedAt.gte(to_millis_rounded_up(filter.start)))
            .filter(Column::CreatedAt.lt(to_millis_rounded_up(filter.end)))
            .filter(matches(filter));
        if let Some(AuditLogPosition { time, id }) = position {
            let time = to_millis(*time);
            // The first condition lets the index be used.
            query = query.filter(Column::CreatedAt.lte(time)).filter(
                Condition::any()
                    .add(Column::CreatedAt.lt(time))
                    .add(Column::Id.lt(id.to_string())),
            );
        }
        let rows = query
            .order_by_desc(Column::CreatedAt)
            .order_by_desc(Column::Id)
            .limit(limit)
            .all(&self.db)
            .await?;
        rows.into_iter().map(TryInto::try_into).collect()
    }

    /// Deletes the records of requests before `before`. Returns how many.
    pub async fn purge_audit_records(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let mut count = 0;
        loop {
            let ids: Vec<String> = audit_log::Entity::find()
                .select_only()
                .column(audit_log::Column::Id)
                .filter(audit_log::Column::CreatedAt.lt(to_millis(before)))
                .limit(PURGE_BATCH)
                .into_tuple()
                .all(&self.db)
                .await?;
            if ids.is_empty() {
                return Ok(count);
            }
            let deleted = audit_log::Entity::delete_many()
                .filter(audit_log::Column::Id.is_in(ids))
                .exec(&self.writer)
                .await?;
            count += deleted.rows_affected;
        }
    }
}

/// Returns the first whole millisecond that is not before `time`, because rows have whole ones.
fn to_millis_rounded_up(time: DateTime<Utc>) -> i64 {
    let millis = to_millis(time);
    match from_millis(millis) {
        Ok(whole) if whole < time => millis + 1,
        _ => millis,
    }
}

/// Returns the condition for the parameters of a filter other than its times.
fn matches(filter: &AuditLogFilter) -> Condition {
    use audit_log::Column;
    let mut all = Condition::all();
    let methods = |names: &[MethodName]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>();
    if !filter.method.is_empty() {
        all = all.add(Column::Method.is_in(methods(&filter.method)));
    }
    if !filter.exclude_method.is_empty() {
        all = all.add(Column::Method.is_not_in(methods(&filter.exclude_method)));
    }
    if !filter.auth_strategy.is_empty() {
        let names = filter.auth_strategy.iter().map(|name| name.as_str());
        all = all.add(Column::AuthStrategy.is_in(names));
    }
    if !filter.service.is_empty() {
        let names = filter.service.iter().map(ServiceName::as_str);
        all = all.add(Column::Service.is_in(names));
    }
    let mut found = Condition::any();
    if let Some(text) = &filter.search {
        let columns = [
            Column::Path,
            Column::Action,
            Column::Resource,
            Column::UserId,
            Column::ClientIp,
            Column::RequestId,
        ];
        found = found.add(search::contains(text.as_str(), &columns));
        if let Ok(status) = text.as_str().parse::<u16>() {
            found = found.add(Column::Status.eq(i32::from(status)));
        }
    }
    if !filter.search_user_id.is_empty() {
        let ids = filter.search_user_id.iter().map(|id| id.as_str());
        found = found.add(Column::UserId.is_in(ids));
    }
    if found.is_empty() {
        all
    } else {
        all.add(found)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use deserr::errors::JsonError;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{audit_logs::ListAuditLogs, ids::AuditLogId},
        control::audit::LossReason,
    };

    const START: &str = "2026-01-01T00:00:00Z";

    async fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let store = Store::open_sqlite(&path).await.unwrap();
        (directory, store)
    }

    /// Returns a record of the time `millis` after [`START`].
    fn record(millis: i64) -> AuditRecord {
        let start = DateTime::parse_from_rfc3339(START).unwrap().to_utc();
        let time = start + TimeDelta::milliseconds(millis);
        AuditRecord::of_lost(1, LossReason::QueueFull, time)
    }

    fn filter(parameters: Value) -> AuditLogFilter {
        let mut all = json!({"start": START, "end": "2026-01-02T00:00:00Z"});
        let parameters = parameters.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(parameters);
        let request = deserr::deserialize::<ListAuditLogs, _, JsonError>(all);
        request.unwrap().filter
    }

    async fn paths(store: &Store, parameters: Value) -> Vec<String> {
        let filter = filter(parameters);
        let found = store.audit_records(&filter, None, 100).await;
        let mut paths: Vec<_> = found.unwrap().into_iter().map(|row| row.path).collect();
        paths.sort_unstable();
        paths
    }

    #[tokio::test]
    async fn stored_record_is_returned_and_stored_once() {
        let (_directory, store) = store().await;
        let record = AuditRecord {
            method: "POST".to_owned(),
            path: "/browsers".to_owned(),
            status: 201,
            duration_ms: 12,
            auth_strategy: AuthStrategy::ApiKey,
            user_id: Some("u".to_owned()),
            api_key_id: Some("key_01kgc3v7e8r9t0w1x2y3z4a5b6".parse().unwrap()),
            project_id: Some("proj_01kgc3v7e8r9t0w1x2y3z4a5b6".parse().unwrap()),
            ..record(0)
        };
        for _ in 0..2 {
            let batch = [record.clone(), record.clone()];
            store.insert_audit_records(&batch).await.unwrap();
        }
        let found = store.audit_records(&filter(json!({})), None, 100).await;
        assert_eq!(found.unwrap(), [record]);
    }

    #[tokio::test]
    async fn window_includes_its_start_and_excludes_its_end() {
        let (_directory, store) = store().await;
        let day = TimeDelta::days(1).num_milliseconds();
        let records = [-1, 0, day - 1, day].map(record);
        store.insert_audit_records(&records).await.unwrap();
        let found = store.audit_records(&filter(json!({})), None, 100).await;
        let times = found.unwrap().into_iter().map(|record| record.time);
        assert_eq!(
            times.collect::<Vec<_>>(),
            [records[2].time, records[1].time]
        );
        let within_a_millisecond = json!({"start": "2026-01-01T00:00:00.0005Z"});
        let filter = filter(within_a_millisecond);
        let found = store.audit_records(&filter, None, 100).await;
        assert_eq!(found.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn pages_have_every_record_once_although_times_are_equal() {
        let (_directory, store) = store().await;
        let records: Vec<_> = (0..10).map(|number| record(number / 5)).collect();
        store.insert_audit_records(&records).await.unwrap();
        let filter = filter(json!({}));
        let (mut found, mut position) = (Vec::new(), None);
        loop {
            let page = store.audit_records(&filter, position.as_ref(), 3).await;
            let page = page.unwrap();
            let Some(last) = page.last() else { break };
            position = Some(AuditLogPosition {
                time: last.time,
                id: last.id.clone(),
            });
            found.extend(page);
        }
        assert!(
            found.is_sorted_by_key(|record| std::cmp::Reverse((record.time, record.id.clone())))
        );
        let mut ids: Vec<&AuditLogId> = found.iter().map(|record| &record.id).collect();
        ids.sort_unstable();
        let mut expected: Vec<&AuditLogId> = records.iter().map(|record| &record.id).collect();
        expected.sort_unstable();
        assert_eq!(ids, expected);
    }

    #[tokio::test]
    async fn filter_selects_records() {
        let (_directory, store) = store().await;
        let records = [
            ("/a%b", "POST", "browsers", 201, "Key_1", "create_browser"),
            ("/axb", "DELETE", "browsers", 404, "key_2", "delete_browser"),
            ("/Other", "GET", "org", 401, "", "list"),
        ];
        let records = records.map(
            |(path, method, service, status, user, action)| AuditRecord {
                path: path.to_owned(),
                method: method.to_owned(),
                service: service.to_owned(),
                status,
                user_id: Some(user.to_owned()).filter(|user| !user.is_empty()),
                action: action.to_owned(),
                resource: None,
                auth_strategy: match status {
                    401 => AuthStrategy::SessionToken,
                    _ => AuthStrategy::ApiKey,
                },
                ..record(0)
            },
        );
        store.insert_audit_records(&records).await.unwrap();
        for (parameters, expected) in [
            (json!({}), &["/Other", "/a%b", "/axb"][..]),
            (json!({"method": "post,DELETE"}), &["/a%b", "/axb"]),
            (json!({"exclude_method": "GET, POST"}), &["/axb"]),
            (json!({"method": "GET", "exclude_method": "GET"}), &[]),
            (json!({"auth_strategy": "session_token,none"}), &["/Other"]),
            (json!({"service": "browsers"}), &["/a%b", "/axb"]),
            (json!({"service": "org,fleet"}), &["/Other"]),
            (json!({"search": "a%B"}), &["/a%b"]),
            (json!({"search": "a_b"}), &[]),
            (json!({"search": "oTHER"}), &["/Other"]),
            (json!({"search": "404"}), &["/axb"]),
            (json!({"search": "DELETE_browser"}), &["/axb"]),
            (json!({"search": "key_"}), &["/a%b", "/axb"]),
            (json!({"search_user_id": "key_2"}), &["/axb"]),
            (
                json!({"search": "other", "search_user_id": "key_2,x"}),
                &["/Other", "/axb"],
            ),
        ] {
            assert_eq!(
                paths(&store, parameters.clone()).await,
                expected,
                "{parameters}"
            );
        }
    }

    #[tokio::test]
    async fn purge_deletes_older_records() {
        let (_directory, store) = store().await;
        let count = i64::try_from(PURGE_BATCH).unwrap() + 5;
        let records: Vec<_> = (0..count).map(record).collect();
        store.insert_audit_records(&records).await.unwrap();
        let limit = records[records.len() - 2].time;
        let purged = store.purge_audit_records(limit).await.unwrap();
        assert_eq!(purged, PURGE_BATCH + 3);
        let remaining = store.audit_records(&filter(json!({})), None, 100).await;
        assert_eq!(remaining.unwrap().len(), 2);
    }
}
