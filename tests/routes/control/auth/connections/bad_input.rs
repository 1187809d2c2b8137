//! Invalid requests about auth connections.

use reqwest::Method;
use serde_json::{Value, json};

use super::{PATH, create, credential, path};
use crate::support::dev::{Answer, Dev};

const UNKNOWN: &str = "conn_00000000000000000000000000";

/// Returns invalid values of fields that requests to create and to update have, and the fields that
/// the response must name.
fn invalid_fields() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(256);
    let mut invalid = vec![
        ("domain", json!(1), "domain"),
        ("domain", json!(["example.com"]), "domain"),
        ("profile_name", json!(""), "profile_name"),
        ("profile_name", json!("a b"), "profile_name"),
        ("profile_name", json!(".."), "profile_name"),
        ("profile_name", json!(long), "profile_name"),
        (
            "profile_name",
            json!("prof_00000000000000000000000000"),
            "profile_name",
        ),
        ("profile_name", json!(1), "profile_name"),
        ("login_url", json!(1), "login_url"),
        (
            "login_url",
            json!(format!("https://example.com/{}", "x".repeat(4096))),
            "login_url",
        ),
        ("credential", json!("admin"), "credential"),
        ("credential", json!({}), "credential.name"),
        ("credential", json!({"name": "unknown"}), "credential.name"),
        (
            "credential",
            json!({"name": "of-another-site"}),
            "credential.name",
        ),
        ("credential", json!({"name": ""}), "credential.name"),
        (
            "credential",
            json!({"name": "x".repeat(1025)}),
            "credential.name",
        ),
        (
            "credential",
            json!({"name": "admin", "auto": true}),
            "credential.name",
        ),
        (
            "credential",
            json!({"provider": "unknown", "auto": true}),
            "credential.provider",
        ),
        (
            "credential",
            json!({"provider": "unknown", "path": "a/b"}),
            "credential.provider",
        ),
        (
            "credential",
            json!({"provider": "unknown"}),
            "credential.path",
        ),
        ("credential", json!({"path": "a/b"}), "credential.provider"),
        (
            "credential",
            json!({"provider": "unknown", "auto": 1}),
            "credential.auto",
        ),
        ("allowed_domains", json!("a.example"), "allowed_domains"),
        ("allowed_domains", json!([1]), "allowed_domains[0]"),
        (
            "allowed_domains",
            json!(["a.example", "*.example.com"]),
            "allowed_domains[1]",
        ),
        ("allowed_domains", json!(["com"]), "allowed_domains[0]"),
        (
            "allowed_domains",
            json!(["a.example/login"]),
            "allowed_domains[0]",
        ),
        (
            "allowed_domains",
            json!(vec!["a.example"; 33]),
            "allowed_domains",
        ),
        ("health_check_interval", json!(59), "health_check_interval"),
        (
            "health_check_interval",
            json!(86_401),
            "health_check_interval",
        ),
        (
            "health_check_interval",
            json!("60"),
            "health_check_interval",
        ),
        (
            "health_check_interval",
            json!(60.5),
            "health_check_interval",
        ),
    ];
    for domain in [
        "",
        "com",
        "co.uk",
        "github.io",
        "127.0.0.1",
        "[::1]",
        "2130706433",
        "example.com:443",
        "https://example.com",
        "example.com/",
        "a@example.com",
        "*.example.com",
        "exa\u{0}mple.com",
        "xn--a.example",
    ] {
        invalid.push(("domain", json!(domain), "domain"));
    }
    for url in [
        "example.com/login",
        "javascript:alert(1)",
        "http://example.com/login",
        "ftp://example.com/",
        "https://user@example.com/",
        "https://example.com@evil.test/",
        "https://evil.test/",
        "https://example.com.evil.test/",
        "https://10.0.0.1/",
        "https://drive.google.com/",
    ] {
        invalid.push(("login_url", json!(url), "login_url"));
    }
    for flag in [
        "health_checks",
        "auto_reauth",
        "save_credentials",
        "record_session",
    ] {
        invalid.push((flag, json!("true"), flag));
        invalid.push((flag, json!(1), flag));
    }
    invalid
}

#[tokio::test]
async fn invalid_request_names_each_invalid_field() {
    let dev = Dev::with(&["--allow-http-logins=false"]).await;
    credential(&dev, "admin", "example.com").await;
    credential(&dev, "of-another-site", "other.example").await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    for (field, value, invalid) in invalid_fields() {
        let mut request = json!({"domain": "example.com", "profile_name": "other"});
        request[field] = value.clone();
        let changes = json!({field: value.clone()});
        for refused in [
            dev.post(PATH, request).await,
            dev.patch(&path(&created), changes).await,
        ] {
            refused.assert_error(400, "bad_request");
            assert_eq!(refused.bad_fields(), [invalid], "{field}: {value}");
        }
    }
    assert_eq!(dev.get(PATH).await.body, json!([created]));
    dev.finish().await;
}

#[tokio::test]
async fn all_invalid_fields_are_named_at_once() {
    let dev = Dev::start().await;
    let missing = dev.post(PATH, json!({})).await;
    missing.assert_error(400, "bad_request");
    assert_eq!(missing.bad_fields(), ["domain", "profile_name"]);
    let several = json!({
        "domain": "com",
        "profile_name": null,
        "credential": {"name": 1, "auto": 1},
        "health_check_interval": 0,
    });
    let several = dev.post(PATH, several).await;
    let expected = [
        "credential.auto",
        "credential.name",
        "domain",
        "health_check_interval",
        "profile_name",
    ];
    assert_eq!(several.bad_fields(), expected);
    let other_site = json!({
        "domain": "example.com",
        "profile_name": "shop",
        "credential": {"name": "admin"},
    });
    credential(&dev, "admin", "other.example").await;
    let other_site = dev.post(PATH, other_site).await;
    let message = &other_site.body["details"][0]["message"];
    assert_eq!(
        message,
        "the credential is for other.example, not for example.com"
    );
    dev.finish().await;
}

#[tokio::test]
async fn field_that_is_not_supported_is_rejected() {
    let dev = Dev::start().await;
    let created = create(&dev, "example.com", "shop", json!({})).await;
    for (field, value) in [
        ("proxy", json!({"id": "proxy"})),
        ("proxy_id", json!("proxy")),
    ] {
        let mut request = json!({"domain": "example.com", "profile_name": "other"});
        request[field] = value;
        for refused in [
            dev.post(PATH, request.clone()).await,
            dev.patch(&path(&created), request).await,
        ] {
            refused.assert_error(400, "unsupported_field");
            assert_eq!(refused.bad_fields(), [field]);
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn invalid_filter_is_rejected() {
    let dev = Dev::start().await;
    let long = format!("query={}", "x".repeat(256));
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("offset=-1", "offset"),
        ("domain=com", "domain"),
        ("domain=a%20b", "domain"),
        ("profile_name=%00", "profile_name"),
        (&long, "query"),
    ] {
        let refused = dev.get(&format!("{PATH}?{query}")).await;
        refused.assert_error(400, "bad_request");
        assert_eq!(refused.bad_fields(), [field]);
    }
    dev.finish().await;
}

#[tokio::test]
async fn unknown_connection_is_404() {
    let dev = Dev::start().await;
    for id in [UNKNOWN, "unknown", "%2F", &"x".repeat(1000)] {
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            let request = dev.request(method, &format!("{PATH}/{id}"));
            let answer = Answer::of(request.json(&json!({}))).await;
            answer.assert_error(404, "not_found");
        }
    }
    dev.finish().await;
}

#[tokio::test]
async fn largest_values_are_accepted() {
    let dev = Dev::start().await;
    let base = "https://example.com/";
    let domains: Vec<_> = (0..32).map(|n| format!("d{n}.example")).collect();
    let request = json!({
        "login_url": format!("{base}{}", "x".repeat(4096 - base.len())),
        "allowed_domains": domains,
        "health_check_interval": 86_400,
    });
    let created = create(&dev, "example.com", &"n".repeat(255), request.clone()).await;
    for field in ["login_url", "allowed_domains", "health_check_interval"] {
        assert_eq!(created[field], request[field], "{field}");
    }
    dev.finish().await;
}
