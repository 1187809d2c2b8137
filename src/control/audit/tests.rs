//! Tests of the audit log as a whole.

use std::{collections::HashSet, io::Read};

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::*;
use crate::api::{
    audit_logs::{AuditLogEntry, AuthStrategy},
    ids::{KeyId, ProjectId},
};

const LONG: Duration = Duration::from_secs(60);

fn actor() -> Actor {
    Actor {
        key: Some(KeyId::generate()),
        holder: None,
        project: Some(ProjectId::generate()),
    }
}

fn request<'a>(actor: Option<&'a Actor>) -> EndedRequest<'a> {
    EndedRequest {
        method: "POST",
        path: "/browsers",
        route: "/browsers",
        action: "create_browser",
        resource: Some("browsers"),
        status: 201,
        duration: Duration::ZERO,
        client: None,
        user_agent: "",
        domain: "",
        auth_strategy: AuthStrategy::ApiKey,
        actor,
        request_id: "r",
    }
}

fn everything() -> AuditLogFilter {
    let now = Utc::now();
    AuditLogFilter {
        start: now - LONG,
        end: now + LONG,
        method: Vec::new(),
        exclude_method: Vec::new(),
        auth_strategy: Vec::new(),
        service: Vec::new(),
        search: None,
        search_user_id: Vec::new(),
    }
}

async fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = Store::open_sqlite(&path).await.unwrap();
    (directory, store)
}

/// Returns the resources of all records with their number.
async fn resources(log: &AuditLog) -> Vec<(String, usize)> {
    let page = log.list(everything(), None, 100_000).await.unwrap();
    let mut resources: Vec<String> = page
        .records
        .into_iter()
        .filter_map(|record| record.resource)
        .collect();
    resources.sort_unstable();
    let chunks = resources.chunk_by(|a, b| a == b);
    chunks
        .map(|equal| (equal[0].clone(), equal.len()))
        .collect()
}

#[tokio::test]
async fn record_beyond_the_queue_is_counted_and_the_count_recorded() {
    let (_directory, store) = store().await;
    let log = AuditLog::start(store);
    let actor = actor();
    // The writer runs on the same thread, so not before the first wait.
    for _ in 0..QUEUE_LENGTH + 7 {
        log.record(&request(Some(&actor)));
    }
    log.close(LONG).await;
    let expected = [
        ("browsers".to_owned(), QUEUE_LENGTH),
        ("queue_full/7".to_owned(), 1),
    ];
    assert_eq!(resources(&log).await, expected);
}

#[tokio::test]
async fn failed_authentications_are_limited_and_the_others_counted() {
    let (_directory, store) = store().await;
    let log = AuditLog::start(store);
    for _ in 0..150 {
        log.record(&request(None));
    }
    log.record(&request(Some(&actor())));
    log.close(LONG).await;
    let found = resources(&log).await;
    // Time passes meanwhile, so that some more may be recorded.
    let (recorded, lost) = (found[0].1 - 1, &found[1].0);
    assert!(recorded >= 100, "{found:?}");
    assert_eq!(*lost, format!("rate_limit/{}", 150 - recorded));
}

#[tokio::test]
async fn export_is_complete_in_every_format_and_chunk_size() {
    let (_directory, store) = store().await;
    let log = AuditLog::start(store);
    let actor = actor();
    let count = EXPORT_BATCH + 500;
    for number in 0..count {
        log.record(&EndedRequest {
            request_id: &number.to_string(),
            ..request(Some(&actor))
        });
    }
    log.close(LONG).await;
    let filter = everything();
    for (format, limit) in [
        (ExportFormat::JsonLines, 10_000),
        (ExportFormat::JsonLinesGzip, 10_000),
        (ExportFormat::JsonLinesGzip, 700),
        (ExportFormat::JsonLines, EXPORT_BATCH),
    ] {
        let (mut ids, mut cursor) = (HashSet::new(), None);
        loop {
            let chunk = log.export(filter.clone(), cursor, limit, format).await;
            let chunk = chunk.unwrap();
            let digest = Sha256::digest(&chunk.body);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(chunk.sha256, digest);
            let mut text = String::new();
            match format {
                ExportFormat::JsonLines => text = String::from_utf8(chunk.body).unwrap(),
                ExportFormat::JsonLinesGzip => {
                    let mut decoder = GzDecoder::new(chunk.body.as_slice());
                    decoder.read_to_string(&mut text).unwrap();
                }
            }
            assert!(chunk.rows <= limit && text.lines().count() as u64 == chunk.rows);
            for line in text.lines() {
                let entry: AuditLogEntry = serde_json::from_str(line).unwrap();
                assert!(ids.insert(entry.request_id), "{line}");
            }
            cursor = chunk.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(ids.len() as u64, count, "{format:?} {limit}");
    }
}

#[tokio::test]
async fn readers_are_limited() {
    let (_directory, store) = store().await;
    let log = AuditLog::start(store);
    let permits: Vec<_> = (0..MAX_READERS).map(|_| log.reader().unwrap()).collect();
    let refused = log.list(everything(), None, 1).await;
    assert!(matches!(refused, Err(AuditLogError::Busy(MAX_READERS))));
    drop(permits);
    log.list(everything(), None, 1).await.unwrap();
}
