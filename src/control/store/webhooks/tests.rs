//! Tests of the tables of webhooks.

use std::slice;

use chrono::TimeDelta;
use sea_orm::{DbBackend, QueryTrait};
use serde_json::{Value, json};

use super::{
    deliveries::{due_of, with_due_deliveries},
    events::MAX_PENDING,
    *,
};
use crate::{
    api::{
        ids::{
            BrowserId, HostId, PoolId, ProfileId, ProjectId, ReplayId, WebhookDeliveryId,
            WebhookEventId,
        },
        profiles::ArchiveContent,
        replays::ReplayEndReason,
        webhooks::{WebhookDeliveryStatus, WebhookPayload},
    },
    control::{
        browsers::state::EndReason,
        replays::state::State,
        store::{
            BeginSave, NewBrowserRow, NewProfileVersion, PoolOrigin, ReplayEnd, SaveSource,
            entity::webhook_delivery,
            test_database::{TestDatabase, explain, is_sorting},
        },
    },
};

async fn store() -> (TestDatabase, Store, ProjectId) {
    let database = TestDatabase::create();
    let store = database.open().await;
    let project = store.default_project("default", Utc::now()).await.unwrap();
    (database, store, project.id)
}

/// Adds a webhook that receives events, in the order of their declaration.
async fn webhook(store: &Store, events: &[WebhookEventType]) -> WebhookRow {
    let now = from_millis(1_000).unwrap();
    let row = WebhookRow {
        id: WebhookId::generate(),
        url: "https://hooks.example/".to_owned(),
        events: events.to_vec(),
        disabled_reason: None,
        revision: 1,
        secret_revision: 1,
        secret_key_version: 1,
        sealed_secret: vec![0, 1],
        created_at: now,
        updated_at: now,
    };
    let created = store.create_webhook(&row, 100).await.unwrap();
    assert_eq!(created, CreateWebhookOutcome::Created);
    row
}

async fn deliveries(store: &Store, webhook: &WebhookRow) -> Vec<WebhookDeliveryRow> {
    let listing = WebhookDeliveryListing {
        limit: 100,
        ..WebhookDeliveryListing::default()
    };
    let listed = store.list_webhook_deliveries(&webhook.id, listing);
    listed.await.unwrap()
}

/// Returns the payloads of the deliveries of a webhook, the oldest first.
async fn payloads(store: &Store, webhook: &WebhookRow) -> Vec<Value> {
    let listed = deliveries(store, webhook).await.into_iter().rev();
    let parse = |row: WebhookDeliveryRow| serde_json::from_str(&row.payload).unwrap();
    listed.map(parse).collect()
}

fn delivery(webhook: &WebhookRow, created_at: DateTime<Utc>) -> WebhookDeliveryRow {
    let payload = WebhookPayload {
        id: WebhookEventId::generate(),
        event_type: "browser.ended".to_owned(),
        created_at: created_at.into(),
        project_id: None,
        data: json!({}),
    };
    WebhookDeliveryRow::new(&webhook.id, &payload).unwrap()
}

/// Writes the next revision of a webhook, which is disabled if there is a reason.
async fn set_disabled(
    store: &Store,
    row: &mut WebhookRow,
    disabled_reason: Option<WebhookDisabledReason>,
) {
    row.disabled_reason = disabled_reason;
    row.revision += 1;
    assert!(store.update_webhook(row).await.unwrap());
}

async fn start_browser(store: &Store, new: NewBrowserRow) -> BrowserId {
    let row = store.create_browser(new, Utc::now()).await.unwrap();
    let host = HostId::generate();
    let published = store.publish_browser(&row.id, &host, 1, Utc::now());
    assert!(published.await.unwrap());
    row.id
}

#[tokio::test]
async fn webhook_is_found_as_it_was_written() {
    let (_database, store, _) = store().await;
    let row = webhook(&store, WebhookEventType::ALL).await;
    let other = webhook(&store, &[WebhookEventType::ReplayLost]).await;
    assert_eq!(store.find_webhook(&row.id).await.unwrap().unwrap(), row);
    let listed = store.list_webhooks(0, 1).await.unwrap();
    assert_eq!(listed, [other.clone(), row.clone()]);
    let changed = WebhookRow {
        url: "https://other.example/".to_owned(),
        events: vec![WebhookEventType::BrowserEnded],
        disabled_reason: Some(WebhookDisabledReason::Gone),
        revision: 2,
        secret_revision: 2,
        sealed_secret: vec![2],
        ..row.clone()
    };
    for is_first in [true, false] {
        assert_eq!(store.update_webhook(&changed).await.unwrap(), is_first);
    }
    assert_eq!(store.find_webhook(&row.id).await.unwrap().unwrap(), changed);
    for is_first in [true, false] {
        assert_eq!(store.delete_webhook(&row.id).await.unwrap(), is_first);
    }
    assert_eq!(store.list_webhooks(0, 9).await.unwrap(), [other]);
    let refused = store.create_webhook(&row, 1).await.unwrap();
    assert_eq!(refused, CreateWebhookOutcome::LimitReached);
}

#[tokio::test]
async fn webhook_is_claimed_by_one_process_at_a_time() {
    let (_database, store, _) = store().await;
    let row = webhook(&store, WebhookEventType::ALL).await;
    let claim = async |holder: &str, now: i64| {
        let (now, until) = (from_millis(now).unwrap(), from_millis(now + 100).unwrap());
        store
            .claim_webhook(&row.id, holder, now, until)
            .await
            .unwrap()
    };
    let claimed = || WebhookClaim::Claimed(Box::new(row.clone()));
    assert_eq!(claim("a", 1000).await, claimed());
    assert_eq!(claim("b", 1100).await, WebhookClaim::Held);
    // It extends its claim.
    assert_eq!(claim("a", 1100).await, claimed());
    assert_eq!(claim("b", 1200).await, WebhookClaim::Held);
    assert_eq!(claim("b", 1201).await, claimed());
    assert_eq!(claim("a", 1202).await, WebhookClaim::Held);
    store.release_webhook(&row.id, "a").await.unwrap();
    assert_eq!(claim("a", 1202).await, WebhookClaim::Held);
    store.release_webhook(&row.id, "b").await.unwrap();
    assert_eq!(claim("a", 1202).await, claimed());
    let mut disabled = row.clone();
    let reason = WebhookDisabledReason::Request;
    set_disabled(&store, &mut disabled, Some(reason)).await;
    let is_disabled = WebhookClaim::Disabled(reason);
    assert_eq!(claim("a", 1203).await, is_disabled);
    store.delete_webhook(&row.id).await.unwrap();
    assert_eq!(claim("a", 1204).await, WebhookClaim::NotFound);
}

#[tokio::test]
async fn delivery_waits_until_its_attempt_and_is_recorded_once() {
    let (_database, store, _) = store().await;
    let row = webhook(&store, WebhookEventType::ALL).await;
    let at = |seconds: i64| from_millis(seconds * 1000).unwrap();
    let waiting = delivery(&row, at(10));
    store.add_webhook_delivery(&waiting).await.unwrap();
    let due = async |seconds: i64| {
        let webhooks = store.webhooks_with_due_deliveries(at(seconds)).await;
        let due = store.due_webhook_deliveries(&row.id, at(seconds), 9).await;
        let due = due.unwrap();
        assert_eq!(webhooks.unwrap().len(), usize::from(!due.is_empty()));
        due
    };
    assert_eq!(due(9).await, []);
    assert_eq!(due(10).await, slice::from_ref(&waiting));
    let attempt = WebhookAttempt {
        status: WebhookDeliveryStatus::Pending,
        next_attempt_at: Some(at(20)),
        ended_at: at(11),
        duration_ms: 5,
        response_status: Some(500),
        response_body: Some("no".to_owned()),
        error: Some("the endpoint responded 500".to_owned()),
    };
    for is_first in [true, false] {
        let recorded = store.record_webhook_attempt(&waiting, &attempt).await;
        assert_eq!(recorded.unwrap(), is_first);
    }
    let repeated = waiting.after(attempt.clone());
    assert_eq!(deliveries(&store, &row).await, slice::from_ref(&repeated));
    assert_eq!(due(19).await, []);
    assert_eq!(due(20).await, slice::from_ref(&repeated));
    let last = WebhookAttempt {
        status: WebhookDeliveryStatus::Delivered,
        next_attempt_at: None,
        error: None,
        ..attempt
    };
    assert!(
        store
            .record_webhook_attempt(&repeated, &last)
            .await
            .unwrap()
    );
    let ended = repeated.after(last.clone());
    assert_eq!(deliveries(&store, &row).await, slice::from_ref(&ended));
    assert!(!store.record_webhook_attempt(&ended, &last).await.unwrap());
    assert_eq!(due(99).await, []);
    for (status, count) in [
        (WebhookDeliveryStatus::Delivered, 1),
        (WebhookDeliveryStatus::Failed, 0),
    ] {
        let listing = WebhookDeliveryListing {
            status: Some(status),
            offset: 0,
            limit: 9,
        };
        let listed = store.list_webhook_deliveries(&row.id, listing).await;
        assert_eq!(listed.unwrap().len(), count);
    }
}

#[tokio::test]
async fn each_change_is_recorded_for_its_subscribers() {
    let (_database, store, project) = store().await;
    let all = webhook(&store, WebhookEventType::ALL).await;
    let ended = webhook(&store, &[WebhookEventType::BrowserEnded]).await;
    let pool = PoolOrigin {
        id: PoolId::generate(),
        name: None,
    };
    let browser = start_browser(
        &store,
        NewBrowserRow {
            name: Some("n".to_owned()),
            start_url: Some("https://shop.example/?token=secret".to_owned()),
            pool: Some(pool.clone()),
            ..NewBrowserRow::sample(&project)
        },
    )
    .await;
    let now = Utc::now();
    let idle = EndReason::Idle;
    for is_first in [true, false] {
        let withdrawn = store.withdraw_browser(&browser, idle, now).await;
        assert_eq!(withdrawn.unwrap(), is_first);
    }
    let gone = EndReason::Gone;
    store.close_browser(&browser, gone, now).await.unwrap();
    // Another one, of which nothing is recorded before its host is released.
    let other = start_browser(&store, NewBrowserRow::sample(&project)).await;
    for _ in 0..2 {
        store.close_browser(&other, gone, now).await.unwrap();
    }
    let payloads = payloads(&store, &all).await;
    let found: Vec<_> = payloads
        .iter()
        .map(|it| (it["type"].as_str().unwrap(), &it["data"]["session_id"]))
        .collect();
    let (browser, other) = (json!(browser), json!(other));
    assert_eq!(
        found,
        [
            ("browser.created", &browser),
            ("browser.ended", &browser),
            ("browser.created", &other),
            ("browser.ended", &other),
        ]
    );
    assert!(payloads.iter().all(|it| it["project_id"] == json!(project)));
    let created = &payloads[0]["data"];
    assert_eq!(
        (&created["name"], &created["headless"]),
        (&json!("n"), &json!(true))
    );
    assert_eq!(created["pool_id"], json!(pool.id));
    assert!(!payloads[0].to_string().contains("secret"));
    assert_eq!(payloads[1]["data"]["reason"], "idle");
    assert_eq!(payloads[3]["data"]["reason"], "gone");
    let of_ended = self::payloads(&store, &ended).await;
    // The same event, with its id.
    assert_eq!(of_ended, [payloads[1].clone(), payloads[3].clone()]);
}

#[tokio::test]
async fn saves_of_browsers_are_events_and_uploads_are_none() {
    let (_database, store, project) = store().await;
    let all = webhook(&store, WebhookEventType::ALL).await;
    let profile = store.create_profile(&project, None, Utc::now()).await;
    let profile = profile.unwrap().id;
    let browser = BrowserId::generate();
    for source in [SaveSource::Browser(&browser), SaveSource::Upload] {
        let id = BrowserId::generate().to_string();
        let begun = store.begin_profile_save(id, &profile, source, Utc::now());
        let BeginSave::Started(save) = begun.await.unwrap() else {
            panic!("the save begins");
        };
        let new = NewProfileVersion {
            blob: "a".to_owned(),
            size_bytes: 7,
            content: ArchiveContent::default(),
            chromium_version: None,
        };
        let published = store.publish_profile_version(&save, new, 9, Utc::now());
        assert!(published.await.unwrap().is_some());
    }
    let reason = "the host of the browser was lost";
    for profile in [&profile, &ProfileId::generate()] {
        let recorded = store.record_save_failure(profile, &browser, reason, Utc::now());
        recorded.await.unwrap();
    }
    let payloads = payloads(&store, &all).await;
    let types: Vec<&Value> = payloads.iter().map(|it| &it["type"]).collect();
    assert_eq!(
        types,
        ["browser.profile_saved", "browser.profile_save_failed"]
    );
    let saved =
        json!({"session_id": browser, "profile_id": profile, "version": 1, "size_bytes": 7});
    assert_eq!(payloads[0]["data"], saved);
    let failed = json!({"session_id": browser, "profile_id": profile, "reason": reason});
    assert_eq!(payloads[1]["data"], failed);
}

#[tokio::test]
async fn replay_is_an_event_when_its_file_is_stored_or_lost() {
    let (_database, store, project) = store().await;
    let all = webhook(&store, WebhookEventType::ALL).await;
    let (replay, browser) = (ReplayId::generate(), BrowserId::generate());
    let started = from_millis(0).unwrap();
    store
        .add_replay(&replay, &project, &browser, started)
        .await
        .unwrap();
    let end = ReplayEnd {
        finished_at: Some(from_millis(6000).unwrap()),
        reason: Some(ReplayEndReason::Stopped),
        duration_ms: Some(6000),
        size_bytes: Some(7),
    };
    for (from, to, is_moved) in [
        (State::Recording, State::Finished, true),
        (State::Recording, State::Stored, false),
        (State::Finished, State::Stored, true),
        (State::Stored, State::Lost, true),
    ] {
        let moved = store.move_replay(&replay, (from, to), &end).await;
        assert_eq!(moved.unwrap(), is_moved, "{from:?} {to:?}");
    }
    let payloads = payloads(&store, &all).await;
    let types: Vec<&Value> = payloads.iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["replay.stored", "replay.lost"]);
    let data = json!({
        "replay_id": replay,
        "session_id": browser,
        "started_at": "1970-01-01T00:00:00.000Z",
        "finished_at": "1970-01-01T00:00:06.000Z",
        "end_reason": "stopped",
        "duration_ms": 6000,
        "size_bytes": 7,
    });
    assert_eq!(payloads[0]["data"], data);
}

#[tokio::test]
async fn disabled_webhook_gets_no_events() {
    let (_database, store, project) = store().await;
    for (reason, error) in [
        (WebhookDisabledReason::Request, "the webhook is disabled"),
        (
            WebhookDisabledReason::Gone,
            "the webhook is disabled: its endpoint responded 410",
        ),
    ] {
        let mut row = webhook(&store, WebhookEventType::ALL).await;
        let other = webhook(&store, WebhookEventType::ALL).await;
        let browser = start_browser(&store, NewBrowserRow::sample(&project)).await;
        set_disabled(&store, &mut row, Some(reason)).await;
        let idle = EndReason::Idle;
        let ended = store.withdraw_browser(&browser, idle, Utc::now());
        assert!(ended.await.unwrap());
        let found = deliveries(&store, &row).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].status, WebhookDeliveryStatus::Failed);
        assert_eq!(found[0].next_attempt_at, None);
        assert_eq!(found[0].error.as_deref(), Some(error));
        let of_other = deliveries(&store, &other).await;
        assert_eq!(of_other.len(), 2);
        assert!(of_other.iter().all(|it| it.next_attempt_at.is_some()));
    }
}

#[tokio::test]
async fn change_of_an_earlier_revision_ends_no_delivery() {
    let (_database, store, _) = store().await;
    let mut row = webhook(&store, WebhookEventType::ALL).await;
    let mut late = row.clone();
    late.revision = 2;
    late.disabled_reason = Some(WebhookDisabledReason::Gone);
    set_disabled(&store, &mut row, None).await;
    let waiting = delivery(&row, Utc::now());
    store.add_webhook_delivery(&waiting).await.unwrap();
    assert!(!store.update_webhook(&late).await.unwrap());
    let found = deliveries(&store, &row).await;
    assert_eq!(found[0].status, WebhookDeliveryStatus::Pending);
}

#[tokio::test]
async fn late_delivery_fails_only_if_its_webhook_is_disabled() {
    let (_database, store, _) = store().await;
    let request = WebhookDisabledReason::Request;
    for (reason, status) in [
        (Some(request), WebhookDeliveryStatus::Failed),
        (
            Some(WebhookDisabledReason::Gone),
            WebhookDeliveryStatus::Pending,
        ),
        (None, WebhookDeliveryStatus::Pending),
    ] {
        let mut row = webhook(&store, WebhookEventType::ALL).await;
        set_disabled(&store, &mut row, reason).await;
        // As if an event was recorded at the same time.
        let late = delivery(&row, Utc::now());
        store.add_webhook_delivery(&late).await.unwrap();
        let failed = store.fail_deliveries_of_disabled_webhook(&row.id, request);
        failed.await.unwrap();
        assert_eq!(deliveries(&store, &row).await[0].status, status);
    }
}

/// Inserts copies of a delivery, all with other ids.
async fn insert(store: &Store, model: &WebhookDeliveryRow, count: u64) {
    let mut inserted = 0;
    while inserted < count {
        let batch = (count - inserted).min(500);
        let rows = (0..batch).map(|_| {
            let row = WebhookDeliveryRow {
                id: WebhookDeliveryId::generate(),
                ..model.clone()
            };
            webhook_delivery::ActiveModel::from(row.to_model()).reset_all()
        });
        webhook_delivery::Entity::insert_many(rows)
            .exec_without_returning(&store.writer)
            .await
            .unwrap();
        inserted += batch;
    }
}

#[tokio::test]
async fn events_are_dropped_while_too_many_deliveries_wait() {
    let (_database, store, project) = store().await;
    let mut row = webhook(&store, &[WebhookEventType::BrowserCreated]).await;
    let other = webhook(&store, &[WebhookEventType::BrowserCreated]).await;
    insert(&store, &delivery(&row, Utc::now()), MAX_PENDING - 1).await;
    let count = async |webhook: &WebhookRow| {
        webhook_delivery::Entity::find()
            .filter(webhook_delivery::Column::WebhookId.eq(webhook.id.as_str()))
            .count(&store.db)
            .await
            .unwrap()
    };
    for _ in 0..3 {
        start_browser(&store, NewBrowserRow::sample(&project)).await;
    }
    assert_eq!((count(&row).await, count(&other).await), (MAX_PENDING, 3));
    let reason = WebhookDisabledReason::Request;
    set_disabled(&store, &mut row, Some(reason)).await;
    set_disabled(&store, &mut row, None).await;
    start_browser(&store, NewBrowserRow::sample(&project)).await;
    assert_eq!(count(&row).await, MAX_PENDING + 1);
}

#[tokio::test]
async fn deliveries_that_have_ended_are_trimmed_and_purged() {
    let (_database, store, _) = store().await;
    let row = webhook(&store, WebhookEventType::ALL).await;
    let other = webhook(&store, WebhookEventType::ALL).await;
    let old = Utc::now() - TimeDelta::days(31);
    let ended = |webhook: &WebhookRow| WebhookDeliveryRow {
        status: WebhookDeliveryStatus::Failed,
        next_attempt_at: None,
        ..delivery(webhook, old)
    };
    insert(&store, &ended(&row), 7).await;
    insert(&store, &delivery(&row, old), 2).await;
    insert(&store, &ended(&other), 3).await;
    let newest = deliveries(&store, &row).await;
    assert_eq!(store.trim_webhook_deliveries(5).await.unwrap(), 2);
    assert_eq!(deliveries(&store, &row).await, newest[..7]);
    assert_eq!(store.trim_webhook_deliveries(5).await.unwrap(), 0);
    let purge = store.purge_webhook_deliveries(old - TimeDelta::days(1));
    assert_eq!(purge.await.unwrap(), 0);
    let purge = store.purge_webhook_deliveries(Utc::now() - TimeDelta::days(30));
    assert_eq!(purge.await.unwrap(), 8);
    // Those that wait remain.
    assert_eq!(deliveries(&store, &row).await, newest[..2]);
    // Until their webhook is deleted.
    insert(&store, &delivery(&other, old), 2).await;
    assert!(store.delete_webhook(&row.id).await.unwrap());
    assert_eq!(store.trim_webhook_deliveries(5).await.unwrap(), 2);
    assert!(deliveries(&store, &row).await.is_empty());
    assert_eq!(deliveries(&store, &other).await.len(), 2);
}

#[tokio::test]
async fn due_deliveries_are_found_with_an_index() {
    let (_database, store, _) = store().await;
    let row = webhook(&store, WebhookEventType::ALL).await;
    insert(&store, &delivery(&row, Utc::now()), 500).await;
    let backend = store.db.get_database_backend();
    let now = from_millis(1).unwrap();
    for query in [
        with_due_deliveries(now).build(backend),
        due_of(&row.id, now).limit(2).build(backend),
    ] {
        let plan = explain(&store.db, query).await;
        let condition = match backend {
            DbBackend::Sqlite => "webhook_deliveries_due (webhook_id=? AND next_attempt_at<?)",
            _ => "webhook_deliveries_due",
        };
        assert!(plan.contains(condition), "{plan}");
        assert!(!is_sorting(&plan), "{plan}");
    }
}
