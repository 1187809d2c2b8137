//! `/login/theme` and `/login/theme/logo`.

use std::fs;

use reqwest::Method;
use serde_json::json;

use super::POLICY;
use crate::support::{
    assets::{assert_open, assert_rejects_others, assert_validates_copies, fetch, header},
    dev::{Answer, Dev, command},
    printed::print,
};

const LOGO: &str = r#"<svg xmlns="http://www.w3.org/2000/svg"/>"#;

#[tokio::test]
async fn default_theme_is_empty_and_has_no_logo() {
    let dev = Dev::start().await;
    let theme = [("/login/theme", "application/json")];
    assert_open(&dev, &theme, &POLICY).await;
    assert_validates_copies(&dev, &theme, &POLICY).await;
    assert_rejects_others(&dev, &["/login/theme/logo", "/login/theme/"], &theme).await;
    let answer = Answer::of(dev.anonymous(Method::GET, "/login/theme")).await;
    assert_eq!(answer.body, json!({"has_logo": false}));
    dev.finish().await;
}

#[tokio::test]
async fn theme_has_name_colors_and_logo_of_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let logo = directory.path().join("logo.svg");
    fs::write(&logo, LOGO).unwrap();
    let dev = Dev::with(&[
        "--login-name",
        "Acme \"Ü\"",
        "--login-accent",
        "#0B6E4F,#6fd8b2",
        "--login-background",
        "#ffffff",
        "--login-logo-file",
        logo.to_str().unwrap(),
    ])
    .await;
    let answer = Answer::of(dev.anonymous(Method::GET, "/login/theme")).await;
    let expected = json!({
        "name": "Acme \"Ü\"",
        "has_logo": true,
        "accent": {"light": "#0b6e4f", "dark": "#6fd8b2"},
        "background": {"light": "#ffffff", "dark": "#ffffff"},
    });
    assert_eq!(answer.body, expected);
    let response = fetch(&dev, Method::GET, "/login/theme/logo").await;
    let headers = response.headers().clone();
    assert_eq!(header(&headers, "content-type"), "image/svg+xml");
    // Opened as a page, the image runs nothing.
    let policy = header(&headers, "content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && policy.ends_with("; sandbox"));
    assert_eq!(response.text().await.unwrap(), LOGO);
    dev.finish().await;
}

#[tokio::test]
async fn invalid_settings_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for (option, value, expected) in [
        ("--login-name", "", "1 to 60 characters"),
        ("--login-accent", "green", "#RRGGBB"),
        ("--login-background", "#fff", "#RRGGBB"),
        ("--login-frame-origins", "app.example.com", "an origin"),
        ("--login-frame-origins", "https://a;b", "an origin"),
        ("--login-logo-file", "/dev/null", "neither an SVG nor a PNG"),
    ] {
        let printed = print(command(directory.path(), &[option, value])).await;
        assert!(!printed.status.success(), "{option} {value}");
        assert!(printed.stderr.contains(expected), "{}", printed.stderr);
    }
}
