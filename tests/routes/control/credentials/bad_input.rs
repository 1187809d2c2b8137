//! Invalid requests about credentials.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{TOTP_SECRET, create};
use crate::support::dev::{Answer, Dev};

const UNKNOWN: &str = "cred_00000000000000000000000000";

/// Returns invalid values of fields that requests to create and to update have, and the fields that
/// the response must name.
fn invalid_fields() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(256);
    let many: Map<_, _> = (0..33).map(|n| (format!("v{n}"), json!("x"))).collect();
    vec![
        ("name", json!(""), "name"),
        ("name", json!("a b"), "name"),
        ("name", json!(long), "name"),
        ("name", json!(UNKNOWN), "name"),
        ("name", json!(1), "name"),
        ("values", json!([]), "values"),
        ("values", json!("planted-value"), "values"),
        ("values", json!(many), "values"),
        ("values", json!({"a": 1}), "values.a"),
        ("values", json!({"a": null}), "values.a"),
        ("values", json!({"a": ""}), "values.a"),
        ("values", json!({"a": {"b": "planted-value"}}), "values.a"),
        ("values", json!({"a": "ä".repeat(2049)}), "values.a"),
        ("values", json!({"": "planted-value"}), "values."),
        ("totp_secret", json!(1), "totp_secret"),
        ("totp_secret", json!("planted"), "totp_secret"),
        ("totp_secret", json!("PLANTED1PLANTED1"), "totp_secret"),
        ("totp_secret", json!("A".repeat(129)), "totp_secret"),
        (
            "totp_secret",
            json!("ＧＥＺＤＧＮＢＶＧＹ３ＴＱＯＪＱ"),
            "totp_secret",
        ),
        (
            "totp_secret",
            json!("otpauth://totp/planted"),
            "totp_secret",
        ),
        (
            "totp_secret",
            json!(format!("otpauth://hotp/planted?secret={TOTP_SECRET}")),
            "totp_secret",
        ),
        ("totp_algorithm", json!("MD5"), "totp_algorithm"),
        ("totp_algorithm", json!(1), "totp_algorithm"),
        ("totp_digits", json!(5), "totp_digits"),
        ("totp_digits", json!(9), "totp_digits"),
        ("totp_digits", json!("6"), "totp_digits"),
        ("totp_period", json!(9), "totp_period"),
        ("totp_period", json!(301), "totp_period"),
        ("totp_period", json!(1.5), "totp_period"),
        ("sso_provider", json!(long), "sso_provider"),
        ("sso_provider", json!("a\u{0}b"), "sso_provider"),
        ("sso_provider", json!(1), "sso_provider"),
    ]
}

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::start().await;
    create(&dev, "shop").await;
    for (field, value, invalid) in invalid_fields() {
        let mut request =
            json!({"name": "other", "domain": "example.com", "totp_secret": TOTP_SECRET});
        request[field] = value.clone();
        let mut changes = json!({"totp_secret": TOTP_SECRET});
        changes[field] = value.clone();
        for refused in [
            dev.post("/credentials", request).await,
            dev.patch("/credentials/shop", changes).await,
        ] {
            refused.assert_error(400, "bad_request");
            assert_eq!(refused.bad_fields(), [invalid], "{field}: {value}");
            let body = refused.body.to_string().to_lowercase();
            assert!(!body.contains("planted"), "{body}");
        }
    }
    for (changes, invalid) in [
        (json!({"remove_value_keys": "a"}), "remove_value_keys"),
        (json!({"remove_value_keys": [1]}), "remove_value_keys[0]"),
        (json!({"remove_value_keys": [""]}), "remove_value_keys[0]"),
        (
            json!({"remove_value_keys": vec!["a"; 33]}),
            "remove_value_keys",
        ),
    ] {
        let refused = dev.patch("/credentials/shop", changes).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [invalid]);
    }
    let unchanged = dev.get("/credentials/shop").await.body;
    assert_eq!(unchanged["created_at"], unchanged["updated_at"]);
    assert_eq!(dev.get("/credentials").await.body, json!([unchanged]));
    dev.finish().await;
}

#[tokio::test]
async fn invalid_domain_is_rejected() {
    let dev = Dev::start().await;
    for domain in [
        json!(null),
        json!(""),
        json!("com"),
        json!("github.io"),
        json!("127.0.0.1"),
        json!("[::1]"),
        json!("2130706433"),
        json!("example.com:443"),
        json!("https://example.com"),
        json!("example.com/"),
        json!("a@example.com"),
        json!("*.example.com"),
        json!("exa\u{0}mple.com"),
        json!("xn--a.example"),
        json!(format!("{}.com", "a".repeat(64))),
        json!(["example.com"]),
    ] {
        let request = json!({"name": "other", "domain": domain});
        let refused = dev.post("/credentials", request).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), ["domain"], "{domain}");
    }
    let missing = dev.post("/credentials", json!({})).await;
    assert_eq!(missing.bad_fields(), ["domain", "name"]);
    for option in ["totp_algorithm", "totp_digits", "totp_period"] {
        let value = if option == "totp_algorithm" {
            json!("SHA1")
        } else {
            json!(8)
        };
        let value = if option == "totp_period" {
            json!(30)
        } else {
            value
        };
        let mut request = json!({"name": "other", "domain": "example.com"});
        request[option] = value;
        let refused = dev.post("/credentials", request).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [option]);
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("domain=com", "domain"),
        ("offset=-1", "offset"),
    ] {
        let refused = dev.get(&format!("/credentials?{query}")).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn unknown_credential_is_404() {
    let dev = Dev::start().await;
    for credential in [UNKNOWN, "unknown", "%2F", &"x".repeat(1000)] {
        for (method, path) in [
            (Method::GET, ""),
            (Method::PATCH, ""),
            (Method::DELETE, ""),
            (Method::GET, "/totp-code"),
        ] {
            let request = dev.request(method, &format!("/credentials/{credential}{path}"));
            let answer = Answer::of(request.json(&json!({}))).await;
            answer.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn largest_values_are_accepted() {
    let dev = Dev::start().await;
    let values: Map<_, _> = (0..32)
        .map(|n| (format!("{n}{}", "n".repeat(253)), json!("x".repeat(4096))))
        .collect();
    let request = json!({"name": "n".repeat(255), "domain": "example.com", "values": values, "sso_provider": "p".repeat(255)});
    let created = dev.post("/credentials", request).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.body["value_keys"].as_array().unwrap().len(), 32);
    dev.finish().await;
}
