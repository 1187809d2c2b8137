//! `/audit-logs/export/chunk`.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{WINDOW, assert_access, assert_invalid_parameters, await_entries};
use crate::support::dev::Dev;

const ROUTE: &str = "/audit-logs/export/chunk";

/// Requests a chunk. Returns its entries, and the cursor of the next one.
async fn chunk(dev: &Dev, parameters: &str) -> (Vec<Value>, Option<String>) {
    let path = format!("{ROUTE}?{WINDOW}&format=jsonl&method=POST{parameters}");
    let response = dev.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let headers = response.headers().clone();
    let body = response.text().await.unwrap();
    let digest = Sha256::digest(body.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(headers["x-content-sha256"], digest);
    assert_eq!(headers["content-type"], "application/x-ndjson");
    let entries: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(headers["x-row-count"], entries.len().to_string());
    let next = headers.get("x-next-cursor");
    let next = next.map(|cursor| cursor.to_str().unwrap().to_owned());
    let has_more = if next.is_some() { "true" } else { "false" };
    assert_eq!(headers["x-has-more"], has_more);
    (entries, next)
}

#[tokio::test]
async fn chunks_of_an_export_have_the_entries_of_the_list() {
    let dev = Dev::start().await;
    for number in 0..5 {
        dev.post("/org/api_keys", json!({"name": format!("n{number}")}))
            .await;
    }
    let expected = await_entries(&dev, "&method=POST", 5).await;
    assert_eq!(chunk(&dev, "").await, (expected.clone(), None));
    let (mut exported, mut cursor) = (Vec::new(), String::new());
    loop {
        let (entries, next) = chunk(&dev, &format!("&limit=2{cursor}")).await;
        exported.extend(entries);
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(exported, expected);

    // Compressed by default.
    let path = format!("{ROUTE}?{WINDOW}&method=POST");
    let response = dev.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/gzip");
    let body = response.bytes().await.unwrap();
    assert!(body.starts_with(&[0x1f, 0x8b]));
    // An export is a read of the log, which is recorded.
    await_entries(&dev, "&search=export_audit_logs", 1).await;
    dev.finish().await;
}

#[tokio::test]
async fn export_requires_an_organization_wide_key_and_valid_parameters() {
    let dev = Dev::start().await;
    assert_access(&dev, &format!("{ROUTE}?{WINDOW}")).await;
    assert_invalid_parameters(&dev, ROUTE).await;
    for query in ["cursor=x", "cursor=", "format=csv", "format="] {
        let refused = dev.get(&format!("{ROUTE}?{WINDOW}&{query}")).await;
        refused.assert_error(400, "bad_request");
        let (field, _) = query.split_once('=').unwrap();
        assert_eq!(refused.bad_fields(), [field]);
    }
    dev.finish().await;
}
