//! Invalid requests, which are refused before anything is started.

use reqwest::Method;
use serde_json::json;

use crate::support::dev::{Answer, Dev};

#[tokio::test]
async fn invalid_create_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    let too_many: serde_json::Map<_, _> = (0..51).map(|n| (n.to_string(), json!(""))).collect();
    for (body, fields) in [
        (json!([]), &["body"][..]),
        (json!({"headless": "yes"}), &["headless"]),
        (json!({"kiosk_mode": 1}), &["kiosk_mode"]),
        (json!({"timeout_seconds": 9}), &["timeout_seconds"]),
        (json!({"timeout_seconds": 259_201}), &["timeout_seconds"]),
        (json!({"timeout_seconds": 10.5}), &["timeout_seconds"]),
        (json!({"timeout_seconds": "60"}), &["timeout_seconds"]),
        (json!({"viewport": 1}), &["viewport"]),
        (
            json!({"viewport": {}}),
            &["viewport.height", "viewport.width"],
        ),
        (
            json!({"viewport": {"width": 1, "height": 9999, "refresh_rate": 0}}),
            &["viewport.height", "viewport.refresh_rate", "viewport.width"],
        ),
        (
            json!({"viewport": {"width": -1, "height": "x"}}),
            &["viewport.height", "viewport.width"],
        ),
        (
            json!({"viewport": {"width": "x", "height": 1, "refresh_rate": 0}}),
            &["viewport.height", "viewport.refresh_rate", "viewport.width"],
        ),
        (
            json!({"viewport": {"width": 3840, "height": 3840}}),
            &["viewport.width"],
        ),
        (
            json!({"viewport": {"width": 3840, "height": 3840, "refresh_rate": 121}}),
            &["viewport.refresh_rate", "viewport.width"],
        ),
        (json!({"name": ""}), &["name"]),
        (json!({"name": "a b"}), &["name"]),
        (json!({"name": ".."}), &["name"]),
        (json!({"name": "n".repeat(256)}), &["name"]),
        (json!({"name": "brw_00000000000000000000000000"}), &["name"]),
        (json!({"name": 5}), &["name"]),
        (json!({"tags": []}), &["tags"]),
        (json!({"tags": too_many}), &["tags"]),
        (
            json!({"tags": {"a": 1, "b": null, "c": "v".repeat(257)}}),
            &["tags.a", "tags.b", "tags.c"],
        ),
        (
            json!({"tags": {"k".repeat(129): ""}}),
            &[&format!("tags.{}", "k".repeat(129))],
        ),
        (json!({"start_url": "example.com"}), &["start_url"]),
        (json!({"start_url": "javascript:alert(1)"}), &["start_url"]),
        (json!({"start_url": 1}), &["start_url"]),
        // Within the limit as written, beyond it when percent-encoded.
        (
            json!({"start_url": format!("https://example.com/{}", "é".repeat(30_000))}),
            &["start_url"],
        ),
        (
            json!({"headless": 1, "timeout_seconds": 1, "name": "", "start_url": ""}),
            &["headless", "name", "start_url", "timeout_seconds"],
        ),
        (json!({"profile": "x"}), &["profile"]),
        (json!({"profile": {}}), &["profile.id"]),
        (json!({"profile": {"id": "x"}}), &["profile.id"]),
        (
            json!({"profile": {"name": "a b", "save_changes": 1}}),
            &["profile.name", "profile.save_changes"],
        ),
    ] {
        let response = dev.post("/browsers", body.clone()).await;
        response.assert_error(400, "bad_request");
        assert_eq!(response.bad_fields(), fields, "{body}");
    }
    let unsupported = json!({
        "stealth": true, "proxy": {"id": "x"}, "extensions": [{}],
        "network": {"allow": []}, "proxy_id": "x", "chrome_policy": {"URLBlocklist": ["*"]},
    });
    for (field, value) in unsupported.as_object().unwrap() {
        let response = dev.post("/browsers", json!({field: value})).await;
        response.assert_error(400, "unsupported_field");
        assert_eq!(response.bad_fields(), [field.as_str()]);
    }
    let mixed = dev
        .post("/browsers", json!({"name": "", "stealth": true}))
        .await;
    mixed.assert_error(400, "bad_request");
    assert_eq!(mixed.bad_fields(), ["name", "stealth"]);
    for (key, is_valid) in [("", false), (&"k".repeat(256)[..], false)] {
        let request = dev.request(Method::POST, "/browsers").json(&json!({}));
        let response = Answer::of(request.header("idempotency-key", key)).await;
        assert_eq!(response.status == 201, is_valid);
        assert_eq!(response.bad_fields(), ["idempotency-key"]);
    }
    let not_json = dev
        .request(Method::POST, "/browsers")
        .header("content-type", "application/json")
        .body("{");
    Answer::of(not_json).await.assert_error(400, "bad_request");
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    assert_eq!(dev.descendants(), []);
    dev.finish().await;
}

#[tokio::test]
async fn invalid_update_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    for (body, fields) in [
        (json!("x"), &["body"][..]),
        (
            json!({"name": "a/b", "tags": 1, "viewport": {"width": 1}, "start_url": "x", "profile": {"name": "a b"}}),
            &[
                "name",
                "profile.name",
                "start_url",
                "tags",
                "viewport.height",
                "viewport.width",
            ],
        ),
        (
            json!({"viewport": {"width": 100, "height": 100}}),
            &["viewport.height", "viewport.width"],
        ),
        (
            json!({"viewport": {"width": "x", "height": 1}, "start_url": format!("data:,{}", "é".repeat(30_000))}),
            &["start_url", "viewport.height", "viewport.width"],
        ),
    ] {
        let response = dev.patch("/browsers/none", body.clone()).await;
        response.assert_error(400, "bad_request");
        assert_eq!(response.bad_fields(), fields, "{body}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_list_request_names_each_invalid_parameter() {
    let dev = Dev::start().await;
    let long = "x".repeat(256);
    for (query, fields) in [
        ("limit=0", &["limit"][..]),
        ("limit=101", &["limit"]),
        ("limit=", &["limit"]),
        ("offset=-1", &["offset"]),
        ("offset=99999999999", &["offset"]),
        ("status=gone", &["status"]),
        (&format!("query={long}"), &["query"]),
        ("tags[]=x", &["tags."]),
        (&format!("tags[a]={}x", "y".repeat(256)), &["tags.a"]),
        (
            "limit=x&offset=x&status=x&tags[]=",
            &["limit", "offset", "status", "tags."],
        ),
    ] {
        let response = dev.get(&format!("/browsers?{query}")).await;
        response.assert_error(400, "bad_request");
        assert_eq!(response.bad_fields(), fields, "{query}");
    }
    let item = dev.get("/browsers/x?status=x").await;
    assert_eq!(item.bad_fields(), ["status"]);
    dev.finish().await;
}

#[tokio::test]
async fn unknown_browser_is_404() {
    let dev = Dev::start().await;
    for id in [
        "unknown",
        "brw_00000000000000000000000000",
        "%2F",
        &"x".repeat(1000),
    ] {
        let path = format!("/browsers/{id}");
        dev.get(&path).await.assert_error(404, "not_found");
        dev.get(&format!("{path}?status=all"))
            .await
            .assert_error(404, "not_found");
        dev.patch(&path, json!({}))
            .await
            .assert_error(404, "not_found");
        dev.delete(&path).await.assert_error(404, "not_found");
    }
    dev.request(Method::PUT, "/browsers").send().await.unwrap();
    let wrong = Answer::of(dev.request(Method::PUT, "/browsers")).await;
    wrong.assert_error(405, "method_not_allowed");
    dev.finish().await;
}
