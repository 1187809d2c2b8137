//! `/fleet/join_tokens`.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::dev::{Answer, Dev};

const PATH: &str = "/fleet/join_tokens";

#[tokio::test]
async fn token_is_shown_once_listed_masked_and_deleted() {
    let dev = Dev::start().await;
    let own = dev.get("/org/api_keys").await.body[0].clone();
    let created = dev.post(PATH, json!({})).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let token = created.body["token"].as_str().unwrap();
    assert!(
        token.starts_with("berth_join_") && token.len() == 88,
        "{token}"
    );
    let mut record = created.body.clone();
    record.as_object_mut().unwrap().remove("token");
    let creator = json!({"id": own["id"], "name": own["name"]});
    let counts = ["uses", "remaining_uses"].map(|field| record[field].clone());
    assert_eq!(counts, [json!(1), json!(1)]);
    assert_eq!(
        (&record["created_by"], &record["labels"]),
        (&creator, &json!({}))
    );
    assert_eq!(
        (record.get("expires_at"), record.get("last_used_at")),
        (None, None)
    );

    let listed = dev.get(PATH).await;
    assert_eq!(listed.body, json!([record]));
    assert!(!dev.log().contains(token));
    let masked = record["masked_token"].as_str().unwrap();
    assert!(token.starts_with(masked.trim_end_matches('…')), "{masked}");

    let path = format!("{PATH}/{}", record["id"].as_str().unwrap());
    assert_eq!(dev.delete(&path).await.status, 204);
    dev.delete(&path).await.assert_error(404, "not_found");
    let unknown = dev.delete(&format!("{PATH}/x")).await;
    unknown.assert_error(404, "not_found");
    assert_eq!(dev.get(PATH).await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn fields_are_stored_and_listed_by_page() {
    let dev = Dev::start().await;
    let labels: BTreeMap<String, String> = (0..50)
        .map(|number| (format!("{number}{}", "ü".repeat(126)), "ä".repeat(256)))
        .collect();
    let request = json!({"uses": 10_000, "expires_at": "2999-01-31T12:00:00Z", "labels": labels});
    let created = dev.post(PATH, request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.body["labels"], json!(labels));
    assert_eq!(created.body["expires_at"], "2999-01-31T12:00:00.000Z");
    assert_eq!(created.body["remaining_uses"], 10_000);
    dev.post(PATH, json!({"uses": 2})).await;

    let first = dev.get(&format!("{PATH}?limit=1")).await;
    assert_eq!(
        (first.header("x-has-more"), first.header("x-next-offset")),
        ("true", "1")
    );
    assert_eq!(first.body[0]["uses"], 2);
    let second = dev.get(&format!("{PATH}?limit=1&offset=1")).await;
    assert_eq!(
        (second.header("x-has-more"), second.header("x-next-offset")),
        ("false", "0")
    );
    assert_eq!(second.body[0]["id"], created.body["id"]);
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("offset=-1", "offset"),
    ] {
        let refused = dev.get(&format!("{PATH}?{query}")).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field], "{query}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_fields_are_reported_and_nothing_is_created() {
    let dev = Dev::start().await;
    let too_many: BTreeMap<String, String> = (0..51)
        .map(|number| (number.to_string(), String::new()))
        .collect();
    let long_key = "k".repeat(129);
    let cases: [(Value, &[&str]); 13] = [
        (json!({"uses": 0}), &["uses"]),
        (json!({"uses": 10_001}), &["uses"]),
        (json!({"uses": -1}), &["uses"]),
        (json!({"uses": 1.5}), &["uses"]),
        (json!({"uses": "1"}), &["uses"]),
        (
            json!({"expires_at": "2020-01-01T00:00:00Z"}),
            &["expires_at"],
        ),
        (json!({"expires_at": "tomorrow"}), &["expires_at"]),
        (json!({"expires_at": 1}), &["expires_at"]),
        (json!({"labels": []}), &["labels"]),
        (json!({"labels": too_many}), &["labels"]),
        (json!({"labels": {"a": 1}}), &["labels.a"]),
        (json!({"labels": {"a": "\u{0}"}}), &["labels.a"]),
        (
            json!({"uses": null, "labels": {"b": "v".repeat(257), (long_key.as_str()): ""}}),
            &["labels.b", &format!("labels.{long_key}")],
        ),
    ];
    for (request, fields) in cases {
        let refused = dev.post(PATH, request).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields);
    }
    assert_eq!(dev.get(PATH).await.body, json!([]));
    dev.finish().await;
}

#[tokio::test]
async fn only_keys_of_the_organization_manage_tokens() {
    let dev = Dev::start().await;
    let project = dev.get("/org/projects/default").await.body["id"].clone();
    let bound = json!({"name": "bound", "project_id": project});
    let bound = dev.post("/org/api_keys", bound).await.body["key"].clone();
    let token = dev.post(PATH, json!({})).await.body;
    let (id, secret) = (
        token["id"].as_str().unwrap(),
        token["token"].as_str().unwrap(),
    );
    let item = format!("{PATH}/{id}");
    let requests = [
        (Method::POST, PATH),
        (Method::GET, PATH),
        (Method::DELETE, &item),
    ];
    for (method, path) in requests {
        let request = || match method {
            Method::POST => dev.anonymous(method.clone(), path).json(&json!({})),
            _ => dev.anonymous(method.clone(), path),
        };
        let refused = Answer::of(request().bearer_auth(bound.as_str().unwrap())).await;
        refused.assert_error(403, "forbidden");
        Answer::of(request())
            .await
            .assert_error(401, "unauthorized");
        // A join token gives access to no route but the registration.
        for credential in [secret, "berth_join_x"] {
            let refused = Answer::of(request().bearer_auth(credential)).await;
            refused.assert_error(401, "unauthorized");
        }
    }
    assert_eq!(dev.get(PATH).await.body[0]["id"], id);
    dev.finish().await;
}

#[tokio::test]
async fn token_expires_no_later_than_the_key_that_creates_it() {
    let dev = Dev::start().await;
    let key = json!({"name": "short", "days_to_expire": 2});
    let key = dev.post("/org/api_keys", key).await.body;
    let create = async |body: Value| {
        let request = dev.anonymous(Method::POST, PATH).json(&body);
        Answer::of(request.bearer_auth(key["key"].as_str().unwrap())).await
    };
    let inherited = create(json!({})).await;
    assert_eq!(inherited.body["expires_at"], key["expires_at"]);
    let same = create(json!({"expires_at": key["expires_at"]})).await;
    assert_eq!(same.status, 201);
    let later = create(json!({"expires_at": "2999-01-01T00:00:00Z"})).await;
    later.assert_error(403, "forbidden");
    assert_eq!(dev.get(PATH).await.body.as_array().unwrap().len(), 2);
    dev.finish().await;
}

#[tokio::test]
async fn creation_and_deletion_are_in_the_audit_log() {
    let dev = Dev::start().await;
    let created = dev.post(PATH, json!({})).await.body;
    let resource = format!("fleet/join_tokens/{}", created["id"].as_str().unwrap());
    dev.delete(&format!("/{resource}")).await;
    for action in ["create_join_token", "delete_join_token"] {
        let query = "/audit-logs?start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z&service=fleet";
        let entry = crate::support::wait::until(action, async || {
            let entries = dev.get(query).await.body;
            let entries = entries.as_array().unwrap().clone();
            entries.into_iter().find(|entry| entry["action"] == action)
        })
        .await;
        assert_eq!(entry["resource"], resource.as_str());
        let secret = created["token"].as_str().unwrap();
        assert!(!entry.to_string().contains(secret));
    }
    dev.finish().await;
}
