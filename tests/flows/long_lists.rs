//! Lists of ten thousand pools, profiles and auth connections.

use std::collections::HashSet;

use berth::api::ids::{AuthConnectionId, PoolId, ProfileId};
use reqwest::StatusCode;

use crate::support::dev::Dev;

const COUNT: usize = 10_000;
/// The rows that one statement inserts.
const BATCH: usize = 500;
/// The largest page.
const PAGE: usize = 100;

/// Inserts rows, each with the values that `row` returns for an id.
async fn insert(dev: &Dev, into: &str, ids: &[String], row: impl Fn(&str) -> String) {
    for ids in ids.chunks(BATCH) {
        let rows: Vec<String> = ids.iter().map(|id| row(id)).collect();
        dev.sql(&format!("INSERT INTO {into} VALUES {}", rows.join(", ")))
            .await;
    }
}

/// Reads a list page by page, and checks that it has every id once, the newest first.
async fn read_all(dev: &Dev, path: &str, mut ids: Vec<String>) {
    ids.sort_unstable();
    ids.reverse();
    let mut seen = Vec::new();
    let mut offset = 0;
    loop {
        let page = dev
            .get(&format!("{path}?limit={PAGE}&offset={offset}"))
            .await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        let rows = page.body.as_array().unwrap();
        assert!(rows.len() <= PAGE, "{}", rows.len());
        seen.extend(
            rows.iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        let next: usize = page.header("x-next-offset").parse().unwrap();
        let has_more = page.header("x-has-more") == "true";
        assert_eq!(has_more, next > 0);
        if !has_more {
            break;
        }
        assert_eq!(next, seen.len());
        offset = next;
    }
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
    assert!(seen == ids, "{} of {} in order", seen.len(), ids.len());
    let larger = dev.get(&format!("{path}?limit={}", PAGE + 1)).await;
    larger.assert_error(400, "bad_request");
    let beyond = dev.get(&format!("{path}?offset={}", ids.len())).await;
    assert_eq!(beyond.body, serde_json::json!([]));
}

async fn project(dev: &Dev) -> String {
    let project = dev.get("/org/projects/default").await.body;
    project["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn ten_thousand_pools_are_listed_in_bounded_pages() {
    let dev = Dev::start().await;
    let project = project(&dev).await;
    let ids: Vec<String> = (0..COUNT).map(|_| PoolId::generate().to_string()).collect();
    let config = r#"{"headless":true,"kiosk_mode":false,"viewport":{"width":800,"height":600,"refresh_rate":25}}"#;
    let columns = "pools (id, project_id, size, fill_rate_per_minute, timeout_seconds, config, \
        config_hash, created_at, updated_at)";
    insert(&dev, columns, &ids, |id| {
        format!("('{id}', '{project}', 0, 25, 600, '{config}', 'x', 0, 0)")
    })
    .await;
    read_all(&dev, "/browser_pools", ids).await;
    dev.finish().await;
}

#[tokio::test]
async fn ten_thousand_profiles_are_listed_in_bounded_pages() {
    let dev = Dev::start().await;
    let project = project(&dev).await;
    let ids: Vec<String> = (0..COUNT)
        .map(|_| ProfileId::generate().to_string())
        .collect();
    let columns = "profiles (id, project_id, version, created_at, updated_at)";
    insert(&dev, columns, &ids, |id| {
        format!("('{id}', '{project}', 0, 0, 0)")
    })
    .await;
    read_all(&dev, "/profiles", ids).await;
    dev.finish().await;
}

#[tokio::test]
async fn ten_thousand_auth_connections_are_listed_in_bounded_pages() {
    let dev = Dev::start().await;
    let project = project(&dev).await;
    let ids: Vec<String> = (0..COUNT)
        .map(|_| AuthConnectionId::generate().to_string())
        .collect();
    let columns = "auth_connections (id, project_id, domain, profile_name, status, \
        credential_name, allowed_domains, health_checks, health_check_interval_seconds, \
        auto_reauth, save_credentials, record_session, revision, created_at, updated_at)";
    insert(&dev, columns, &ids, |id| {
        format!(
            "('{id}', '{project}', 'example.com', '{id}', 'NEEDS_AUTH', '{id}', '[]', true, 3600, \
             true, true, false, 1, 0, 0)"
        )
    })
    .await;
    let last = ids.last().unwrap();
    for filter in [
        format!("profile_name={last}"),
        format!("domain=example.com&profile_name={last}"),
        format!("query={last}"),
        "domain=example.com&limit=1".to_owned(),
    ] {
        let found = dev.get(&format!("/auth/connections?{filter}")).await.body;
        assert_eq!(found.as_array().unwrap().len(), 1, "{filter}");
        assert_eq!(found[0]["id"], last.as_str(), "{filter}");
    }
    read_all(&dev, "/auth/connections", ids).await;
    dev.finish().await;
}
