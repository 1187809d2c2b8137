//! Invalid requests, which are refused before anything is changed.

use std::collections::BTreeMap;

use super::*;

/// Fields of pools with invalid values.
fn invalid_settings() -> Vec<(&'static str, Value)> {
    vec![
        ("size", json!(-1)),
        ("size", json!(10_001)),
        ("size", json!(1.5)),
        ("size", json!("1")),
        ("name", json!("")),
        ("name", json!("a b")),
        ("name", json!("n".repeat(256))),
        ("name", json!(UNKNOWN)),
        ("name", json!(1)),
        ("fill_rate_per_minute", json!(0)),
        ("fill_rate_per_minute", json!(10_001)),
        ("fill_rate_per_minute", json!("25")),
        ("timeout_seconds", json!(9)),
        ("timeout_seconds", json!(259_201)),
        ("max_age_seconds", json!(31_536_001)),
        ("max_age_seconds", json!(-1)),
        ("max_leases", json!(1_000_001)),
        ("max_leases", json!("1")),
        ("headless", json!("yes")),
        ("kiosk_mode", json!(1)),
        ("viewport", json!(1)),
        (
            "viewport.refresh_rate",
            json!({"width": 800, "height": 600, "refresh_rate": 0}),
        ),
        (
            "viewport.refresh_rate",
            json!({"width": 800, "height": 600, "refresh_rate": 121}),
        ),
        ("start_url", json!("javascript:alert(1)")),
        ("refresh_on_profile_update", json!("yes")),
    ]
}

#[tokio::test]
async fn invalid_settings_name_each_invalid_field() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 0, "name": "n"})).await;
    for (field, value) in invalid_settings() {
        let mut body = json!({"size": 0});
        body[field.split('.').next().unwrap()] = value;
        let created = dev.post("/browser_pools", body.clone()).await;
        created.assert_error(400, "bad_request");
        assert_eq!(created.bad_fields(), [field], "{body}");
        let changed = dev.patch("/browser_pools/n", body.clone()).await;
        changed.assert_error(400, "bad_request");
        assert_eq!(changed.bad_fields(), [field], "{body}");
    }
    let change = json!({"discard_all_idle": "yes"});
    let refused = dev.patch("/browser_pools/n", change).await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["discard_all_idle"]);
    let missing = dev.post("/browser_pools", json!({})).await;
    missing.assert_error(400, "bad_request");
    assert_eq!(missing.bad_fields(), ["size"]);
    let all = json!({"size": -1, "name": "", "viewport": {"width": 1, "height": 1}});
    let refused = dev.post("/browser_pools", all).await;
    let fields = ["name", "size", "viewport.height", "viewport.width"];
    assert_eq!(refused.bad_fields(), fields);
    let unsupported = json!({
        "stealth": true, "proxy": {"id": "x"}, "extensions": [{}], "network": {"allow": []},
        "proxy_id": "x", "chrome_policy": {"URLBlocklist": ["*"]},
    });
    for (field, value) in unsupported.as_object().unwrap() {
        let refused = dev.post("/browser_pools", json!({"size": 0, field: value}));
        refused.await.assert_error(400, "unsupported_field");
        let refused = dev.patch("/browser_pools/n", json!({field: value}));
        refused.await.assert_error(400, "unsupported_field");
    }
    let listed = dev.get("/browser_pools").await.body;
    assert_eq!(names(&listed), ["n"]);
    dev.finish().await;
}

#[tokio::test]
async fn invalid_lease_names_each_invalid_field() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 0, "name": "n"})).await;
    let acquire = "/browser_pools/n/acquire";
    let too_many_tags: BTreeMap<String, &str> = (0..51).map(|key| (key.to_string(), "v")).collect();
    for (body, fields) in [
        (json!([]), &["body"][..]),
        (
            json!({"acquire_timeout_seconds": 301}),
            &["acquire_timeout_seconds"],
        ),
        (
            json!({"acquire_timeout_seconds": -1}),
            &["acquire_timeout_seconds"],
        ),
        (
            json!({"acquire_timeout_seconds": "x", "name": "", "tags": [], "start_url": "x"}),
            &["acquire_timeout_seconds", "name", "start_url", "tags"],
        ),
        (json!({"tags": too_many_tags}), &["tags"]),
        (json!({"profile": 1}), &["profile"]),
        (
            json!({"profile": {"name": "", "save_changes": 1}}),
            &["profile.name", "profile.save_changes"],
        ),
        (json!({"profile": {"id": "x"}}), &["profile.id"]),
    ] {
        let refused = dev.post(acquire, body.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{body}");
    }
    let release = "/browser_pools/n/release";
    for (body, fields) in [
        (json!({}), &["session_id"][..]),
        (json!({"session_id": "x"}), &["session_id"]),
        (
            json!({"session_id": 1, "reuse": "x"}),
            &["reuse", "session_id"],
        ),
    ] {
        let refused = dev.post(release, body.clone()).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), fields, "{body}");
    }
    let long = "x".repeat(256);
    for (parameter, value) in [
        ("limit", "0"),
        ("offset", "-1"),
        ("name", "%00"),
        ("query", &long),
        ("region", &long),
    ] {
        let path = format!("/browser_pools?{parameter}={value}");
        let refused = dev.get(&path).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [parameter]);
    }
    let refused = dev.delete("/browser_pools/n?force=yes").await;
    refused.assert_error(400, "bad_request");
    assert_eq!(refused.bad_fields(), ["force"]);
    let request = dev.request(Method::DELETE, "/browser_pools/n");
    let refused = Answer::of(request.json(&json!({"force": 1}))).await;
    assert_eq!(refused.bad_fields(), ["force"]);
    dev.finish().await;
}
