//! `POST /login/inspect`: what pages ask for.
//!
//! A page is a file in `pages`. Its first line is a comment with the expected parts of the
//! description, in JSON. All others have to be absent. `SITE` and `OTHER` stand for the origins.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{inspect, inspect_with, languages};
use crate::{
    routes::agent::credentials::pages::{FormSite, Variant, read_pages, variant},
    support::{
        agent::{Start, TestAgent},
        page::Page,
        requests::wrong_fields,
    },
};

/// Returns the expected parts of a description, those that have to be absent included.
fn expected_parts(expected: &Value) -> Value {
    let mut parts = json!({
        "state": "stable",
        "unreachable": false,
        "http_status": 200,
        "addresses": ["127.0.0.1"],
        "fields": [],
        "choices": [],
        "login_link": null,
        "code": null,
        "push": null,
        "email_link": null,
        "captcha": false,
        "passkey": false,
        "consent": null,
        "remember": null,
        "skip": null,
        "error": null,
        "evidence": {"log_out": "absent", "account": "absent"},
    });
    for (name, value) in expected.as_object().unwrap() {
        match value {
            Value::Object(fields) if name == "evidence" => {
                let evidence = parts[name].as_object_mut().unwrap();
                evidence.extend(fields.clone());
            }
            value => parts[name] = value.clone(),
        }
    }
    parts
}

/// Whether a value has all parts that are expected.
fn matches(expected: &Value, actual: &Value, [site, other]: &[String; 2]) -> bool {
    let origins = [site.clone(), other.clone()];
    match expected {
        Value::Object(parts) => {
            let has = |(name, part): (&String, &Value)| matches(part, &actual[name], &origins);
            actual.is_object() && parts.iter().all(has)
        }
        Value::Array(items) => actual.as_array().is_some_and(|actual| {
            let mut pairs = items.iter().zip(actual);
            items.len() == actual.len() && pairs.all(|(item, one)| matches(item, one, &origins))
        }),
        Value::String(text) if text == "SITE" => actual == site,
        Value::String(text) if text == "OTHER" => actual == other,
        expected => expected == actual,
    }
}

/// Returns the names of the parts that are not as expected.
fn differences(site: &FormSite, variant: &Variant, inspected: &Value) -> Vec<String> {
    let origins = site.origins();
    let expected = expected_parts(&variant.expected["expect"]);
    let expected = expected.as_object().unwrap().iter();
    let wrong = expected.filter(|(name, part)| !matches(part, &inspected[*name], &origins));
    wrong
        .map(|(name, part)| {
            format!(
                "{}: {name} is {}, not {part}",
                variant.name, inspected[name]
            )
        })
        .collect()
}

/// Asserts that a fill finds all fields of a description.
async fn check_fill(agent: &TestAgent, variant: &Variant, inspected: &Value) {
    let fields = inspected["fields"].as_array().unwrap();
    if fields.is_empty() || fields.iter().any(|field| field["covered"] == true) {
        return;
    }
    let mut request = variant.request();
    request["allowed_domains"] = json!(["other-site.test"]);
    request["dry_run"] = true.into();
    request["values"] = json!({});
    request["fields"] = json!([]);
    let code_length = variant.expected["code_length"].as_u64().unwrap_or(8);
    for (index, field) in fields.iter().enumerate() {
        let name = match field["kind"] == "code" {
            true => "code".to_owned(),
            false => format!("value_{index}"),
        };
        let value = "1".repeat(usize::try_from(code_length).unwrap());
        request["values"][&name] = value.into();
        assert!(field["selector"].is_string(), "{}: {field}", variant.name);
        let to_fill = json!({"name": name, "selector": field["selector"]});
        request["fields"].as_array_mut().unwrap().push(to_fill);
    }
    let fill = agent.post("/credentials/fill").json(&request);
    let (status, filled) = agent.answer(fill).await;
    assert_eq!(status, StatusCode::OK, "{}: {filled}", variant.name);
    let outcomes = filled["fields"].as_array().unwrap();
    assert_eq!(outcomes.len(), fields.len(), "{}: {filled}", variant.name);
    let is_found = |field: &Value| field["outcome"] == "found";
    assert!(outcomes.iter().all(is_found), "{}: {filled}", variant.name);
}

/// Inspects pages one after the other in one browser. A fill has to find their fields.
async fn check_all(variants: &[Variant]) {
    let site = FormSite::serve(variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    inspect(&agent).await;
    let mut wrong = Vec::new();
    for variant in variants {
        page.go_to(&site.url(variant)).await;
        let inspected = inspect(&agent).await;
        assert_eq!(inspected["url"], site.url(variant));
        wrong.extend(differences(&site, variant, &inspected));
        check_fill(&agent, variant, &inspected).await;
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    agent.stop().await;
}

#[tokio::test]
async fn page_is_described_as_expected() {
    let mut variants = read_pages("tests/routes/agent/login/pages");
    assert!(variants.len() > 120, "{}", variants.len());
    variants.sort_by(|a, b| a.name.cmp(&b.name));
    check_all(&variants).await;
}

#[tokio::test]
async fn page_of_each_language_is_described_as_expected() {
    let blank = variant("page", "");
    let site = FormSite::serve(std::slice::from_ref(&blank)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    inspect(&agent).await;
    // All in one document, which takes less time than to load each.
    page.go_to(&site.url(&blank)).await;
    let mut wrong = Vec::new();
    for variant in languages::variants() {
        page.show(&variant.html).await;
        let inspected = inspect(&agent).await;
        wrong.extend(differences(&site, &variant, &inspected));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    agent.stop().await;
}

#[tokio::test]
async fn filled_values_are_in_no_description_and_no_log() {
    let secret = "planted-4kw8-value";
    let html = "<title>Sign in</title><form>\
        <label>User name <input name=username></label>\
        <label>Password <input type=password name=password></label><button>Log in</button></form>\
        <button id=sso>Sign in with Google</button>\
        <div role=alert></div><script>document.querySelector('form').onsubmit = (event) => {\
          event.preventDefault();\
          const value = document.querySelector('input').value;\
          document.querySelector('label').firstChild.data = `User name ${value}`;\
          document.querySelector('form button').textContent = `Log in as ${value}`;\
          sso.textContent = `Sign in with Google as ${value}`;\
          document.querySelector('[role=alert]').textContent = `Wrong password of ${value.toUpperCase()}.`;\
          history.pushState(null, '', `/pages/${value}`);\
        }</script>";
    let variant = variant("login", html);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless().logging("trace")).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variant)).await;
    let mut request = variant.request();
    request["values"] = json!({"username": secret, "password": format!("{secret}-2")});
    request["submit"] = true.into();
    let filled = agent
        .ok(agent.post("/credentials/fill").json(&request))
        .await;
    assert_eq!(filled["submitted"], true, "{filled}");
    // The message never contains it. All other texts do unless the request names it.
    let inspected = inspect(&agent).await;
    assert_eq!(inspected["error"], "Wrong password of •••.");
    assert!(inspected.to_string().contains(secret), "{inspected}");
    let mut redact = vec![secret.to_owned(), format!("{secret}-2")];
    // The largest body: each byte of these values is escaped.
    redact.resize(33, "\u{1}".repeat(4096));
    let body = json!({ "quiet_ms": 20, "redact": redact });
    let inspected = inspect_with(&agent, &body).await;
    assert_eq!(inspected["url"], format!("{}/pages/•••", site.origins()[0]));
    assert_eq!(inspected["fields"][0]["label"], "User name •••");
    assert_eq!(inspected["submit"]["label"], "Log in as •••");
    let choice = &inspected["choices"][0];
    assert_eq!(choice["label"], "Sign in with Google as •••");
    assert_eq!(inspected["fields"][0]["has_value"], true);
    let text = inspected.to_string().to_lowercase();
    assert!(!text.contains(secret), "{text}");
    let log = agent.log();
    assert!(log.contains("/login/inspect"), "the log has the requests");
    // The address of a page is in the log of Chromium's messages, which the page chose itself.
    assert!(!log.contains(&format!("{secret}-2")));
    agent.stop().await;
}

#[tokio::test]
async fn description_of_a_large_page_is_bounded() {
    let html = "<title>Sign in</title><body><script>\
        const long = 'x'.repeat(5000);\
        const add = (html, count, parent = document.body) =>\
          parent.insertAdjacentHTML('beforeend', html.repeat(count));\
        add(`<div><p>${long}`, 200);\
        add('<form action=/login><input type=password name=password></form>', 1);\
        const form = document.querySelector('form');\
        add(`<label>${long}<input name=${long} placeholder=${long} inputmode=${long}\
          aria-describedby=note></label>`, 500, form);\
        add(`<button type=button>Sign in with Google ${'x '.repeat(20)}</button>`, 2000, form);\
        add(`<p id=note>${long}</p><p role=alert>Wrong ${'password '.repeat(40)}</p>`, 1, form);\
        add('<iframe srcdoc=\"<form><input name=user><input type=password></form>\"></iframe>', 70);\
        </script>";
    let variant = variant("large", html);
    let site = FormSite::serve(std::slice::from_ref(&variant)).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variant)).await;
    let inspected = inspect_with(&agent, &json!({"wait_ms": 0})).await;
    let fields = inspected["fields"].as_array().unwrap();
    assert_eq!(fields.len(), 32);
    assert_eq!(inspected["choices"].as_array().unwrap().len(), 48);
    let characters = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    for field in fields {
        for (part, max) in [
            ("name", 100),
            ("selector", 1024),
            ("label", 120),
            ("hint", 200),
        ] {
            assert!(characters(&field[part]) <= max, "{part}: {field}");
        }
        assert_eq!(field["input_mode"], "text");
    }
    assert_eq!(characters(&inspected["error"]), 300);
    let length = inspected.to_string().len();
    assert!(length < 200_000, "{length}");
    agent.stop().await;
}

#[tokio::test]
async fn invalid_request_is_400() {
    let agent = Start::without_browser().listening().await;
    for (field, value, wrong) in [
        ("wait_ms", json!(-1), "wait_ms"),
        ("wait_ms", json!(5001), "wait_ms"),
        ("wait_ms", json!("1"), "wait_ms"),
        ("wait_ms", json!(1.5), "wait_ms"),
        ("quiet_ms", json!(9), "quiet_ms"),
        ("quiet_ms", json!(1001), "quiet_ms"),
        ("redact", json!("value"), "redact"),
        ("redact", json!(vec!["value"; 34]), "redact"),
        ("redact", json!(["value", ""]), "redact[1]"),
        ("redact", json!(["value", 1]), "redact[1]"),
        ("redact", json!(["x".repeat(4097)]), "redact[0]"),
    ] {
        let request = agent.post("/login/inspect").json(&json!({ field: value }));
        let (status, response) = agent.answer(request).await;
        assert_eq!(
            status,
            StatusCode::BAD_REQUEST,
            "{field}: {value}: {response}"
        );
        assert_eq!(wrong_fields(&response), [wrong], "{field}: {value}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn request_needs_the_token_and_the_session() {
    let agent = Start::without_browser().listening().await;
    let act = json!({"ref": "a-1", "kind": "click", "domain": "example.com"});
    for (path, body) in [("/login/inspect", json!({})), ("/login/act", act)] {
        let without_token = agent
            .http
            .request(Method::POST, agent.url(path))
            .json(&body);
        let status = agent.answer(without_token).await.0;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        let of_another_session = agent.post(path).json(&body).header("berth-generation", "2");
        let (status, response) = agent.answer(of_another_session).await;
        assert_eq!(status, StatusCode::GONE, "{path}: {response}");
        assert_eq!(response["code"], "session_ended", "{path}");
    }
    agent.stop().await;
}
