//! The findings of an agent's descriptions.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;
use crate::api::{login_page::InspectedPage, time::Timestamp};

/// Returns a page of the site that requests nothing, with some other parts.
pub(in crate::control::auth_connections) fn inspected(parts: Value) -> InspectedPage {
    let mut page = json!({
        "url": "https://shop.test/login",
        "url_digest": "a",
        "document": "1",
        "state": "stable",
        "unreachable": false,
        "addresses": ["93.184.216.34"],
        "fields": [],
        "choices": [],
        "captcha": false,
        "passkey": false,
        "evidence": {"log_out": "absent", "account": "absent", "log_in": "absent", "cookies": "a"},
    });
    for (name, part) in parts.as_object().unwrap() {
        match part {
            Value::Object(evidence) if name == "evidence" => {
                page[name].as_object_mut().unwrap().extend(evidence.clone());
            }
            part => page[name] = part.clone(),
        }
    }
    serde_json::from_value(page).unwrap()
}

/// Returns a field with a selector, with some other parts.
pub(in crate::control::auth_connections) fn inspected_field(kind: &str, parts: Value) -> Value {
    let mut field = json!({
        "name": kind,
        "kind": kind,
        "selector": format!("#{kind}"),
        "origin": "https://shop.test",
        "label": "Label",
        "input_mode": "text",
        "required": false,
        "has_value": false,
        "covered": false,
    });
    let parts = parts.as_object().unwrap().clone();
    field.as_object_mut().unwrap().extend(parts);
    field
}

pub(in crate::control::auth_connections) fn inspected_choice(kind: &str, parts: Value) -> Value {
    let mut choice = json!({
        "ref": "a-1",
        "kind": kind,
        "selector": "#choice",
        "label": "Label",
        "origin": "https://shop.test",
        "selected": false,
    });
    let parts = parts.as_object().unwrap().clone();
    choice.as_object_mut().unwrap().extend(parts);
    choice
}

fn element() -> Value {
    json!({"ref": "a-1", "label": "Label"})
}

fn class_of(host: &str) -> PageOrigin {
    match host {
        "shop.test" => PageOrigin::Domain,
        "login.test" => PageOrigin::AllowedDomain,
        "accounts.idp.test" => PageOrigin::IdentityProvider {
            provider: "idp".to_owned(),
        },
        _ => PageOrigin::NotPermitted,
    }
}

fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

fn convert(page: &InspectedPage, before: Option<&PageMark>) -> Result<PageFindings, PageFailure> {
    let context = InspectionContext {
        class_of: &class_of,
        is_internal: &is_internal,
        before,
        identifiers: &["ada", "Ada@example.com"],
    };
    PageFindings::from_inspection(page, context)
}

fn findings(parts: Value) -> PageFindings {
    convert(&inspected(parts), None).unwrap()
}

#[test]
fn site_that_is_down_is_a_failure() {
    for parts in [json!({"unreachable": true}), json!({"http_status": 503})] {
        let found = convert(&inspected(parts.clone()), None);
        assert_eq!(found, Err(PageFailure::Unavailable), "{parts}");
    }
    let fields = json!([inspected_field("password", json!({}))]);
    findings(json!({"http_status": 503, "fields": fields}));
    findings(json!({"http_status": 404}));
}

#[test]
fn page_that_requests_nothing_has_no_findings() {
    let mut expected = page();
    expected.evidence.form_absent = true;
    assert_eq!(findings(json!({})), expected);
}

#[test]
fn form_is_not_absent_while_the_page_is_loading() {
    for (state, is_absent) in [
        ("navigating", false),
        ("loading", false),
        ("changing", true),
        ("stable", true),
    ] {
        let found = findings(json!({ "state": state }));
        assert_eq!(found.evidence.form_absent, is_absent, "{state}");
    }
}

#[test]
fn origin_is_that_of_the_fields_unless_the_page_is_worse() {
    let of_frame = |origin: &str| json!([inspected_field("password", json!({"origin": origin}))]);
    let provider = class_of("accounts.idp.test");
    for (parts, host, origin) in [
        (json!({}), "shop.test", PageOrigin::Domain),
        (
            json!({"fields": of_frame("https://login.test:8443")}),
            "login.test",
            PageOrigin::AllowedDomain,
        ),
        (
            json!({"fields": of_frame("https://accounts.idp.test")}),
            "accounts.idp.test",
            provider,
        ),
        (
            json!({"url": "https://evil.test/", "fields": of_frame("https://shop.test")}),
            "shop.test",
            PageOrigin::NotPermitted,
        ),
        (
            json!({"fields": of_frame("null")}),
            "",
            PageOrigin::NotPermitted,
        ),
        (
            json!({"addresses": ["10.0.0.1", "93.184.216.34"]}),
            "shop.test",
            PageOrigin::Internal,
        ),
        (
            json!({"url": "http://[fd00::1]/", "addresses": []}),
            "[fd00::1]",
            PageOrigin::Internal,
        ),
        (json!({"addresses": []}), "shop.test", PageOrigin::Domain),
    ] {
        let found = findings(parts.clone());
        assert_eq!((&*found.host, found.origin), (host, origin), "{parts}");
    }
}

#[test]
fn fields_keep_their_meaning() {
    let fields = [
        ("username", json!({"input_mode": "numeric"})),
        ("email", json!({"has_value": true, "required": true})),
        ("phone", json!({"placeholder": "+1"})),
        ("password", json!({"has_value": true})),
        ("new_password", json!({})),
        ("code", json!({})),
        ("security_answer", json!({"hint": "First pet?"})),
        ("text", json!({"hint": "Of your organization"})),
        ("text", json!({"required": true})),
    ]
    .map(|(kind, parts)| inspected_field(kind, parts));
    let code = json!({"source": "sms", "masked_target": "•••12"});
    let found = findings(json!({"fields": fields, "code": code}));
    let actual: Vec<_> = found
        .fields
        .iter()
        .map(|field| (field.kind, field.input, field.required, &*field.label))
        .collect();
    let expected = [
        (FieldKind::Identifier, FieldInput::Number, true, "Label"),
        (FieldKind::Identifier, FieldInput::Email, false, "Label"),
        (FieldKind::Identifier, FieldInput::Tel, true, "Label"),
        (FieldKind::Password, FieldInput::Text, true, "Label"),
        (FieldKind::NewPassword, FieldInput::Text, true, "Label"),
        (FieldKind::Code, FieldInput::Text, true, "Label"),
        (
            FieldKind::SecurityAnswer,
            FieldInput::Text,
            true,
            "First pet?",
        ),
        (FieldKind::Text, FieldInput::Text, false, "Label"),
        (FieldKind::Text, FieldInput::Text, true, "Label"),
    ];
    assert_eq!(actual, expected);
    let code = &found.fields[5];
    assert_eq!(code.mfa_type, Some(MfaType::Sms));
    assert_eq!(code.hint.as_deref(), Some("•••12"));
    assert_eq!(code.selector, "#code");
    assert_eq!(found.fields[2].placeholder.as_deref(), Some("+1"));
    assert_eq!(found.fields[3].mfa_type, None);
    assert_eq!(found.fields[6].hint, None);
    assert_eq!(
        found.fields[7].hint.as_deref(),
        Some("Of your organization")
    );
    assert!(!found.evidence.form_absent);
}

#[test]
fn form_that_cannot_be_filled_as_one_is_left_to_the_person() {
    for (parts, kind) in [
        (json!({"selector": null}), ExternalActionKind::Unknown),
        (
            json!({"origin": "https://login.test"}),
            ExternalActionKind::Unknown,
        ),
        (json!({"covered": true}), ExternalActionKind::Obstacle),
    ] {
        let fields = json!([
            inspected_field("username", json!({})),
            inspected_field("password", parts),
        ]);
        let found = findings(json!({ "fields": fields }));
        assert_eq!(found.fields, []);
        assert_eq!(found.external.map(|action| action.kind), Some(kind));
        assert!(!found.evidence.form_absent);
    }
    let covered = json!([inspected_field("password", json!({"covered": true}))]);
    let found = findings(json!({"fields": covered, "consent": element()}));
    assert_eq!(found.obstacle, Some(PageObstacle::ConsentBanner));
    assert_eq!(found.external, None);
}

#[test]
fn choices_keep_their_meaning() {
    let method = |kind: &str, method: &str| inspected_choice(kind, json!({"method": method}));
    let account = |label: &str| inspected_choice("account", json!({"label": label}));
    let choices = [
        method("mfa_method", "totp"),
        method("mfa_method", "passkey"),
        method("sign_in_option", "password"),
        method("sign_in_option", "passkey"),
        inspected_choice(
            "sso_provider",
            json!({"provider": "idp", "target_host": "accounts.idp.test"}),
        ),
        account("Ada Lovelace (ada@EXAMPLE.com)"),
        account("Grace grace-ada@example.com"),
        inspected_choice("other_account", json!({"label": "Not ada"})),
        inspected_choice(
            "mfa_method",
            json!({"method": "sms", "masked_target": "•••12"}),
        ),
        // Not of a permitted host, leading to another one, and without a selector.
        inspected_choice("account", json!({"origin": "https://evil.test"})),
        inspected_choice(
            "sso_provider",
            json!({"provider": "x", "target_host": "evil.test"}),
        ),
        inspected_choice("account", json!({"selector": null})),
    ];
    let found = findings(json!({ "choices": choices }));
    let actual: Vec<_> = found
        .choices
        .iter()
        .map(|choice| (choice.kind, choice.mfa_type, choice.is_of_credential))
        .collect();
    let expected = [
        (FlowChoiceType::MfaMethod, Some(MfaType::Totp), false),
        (FlowChoiceType::Other, None, false),
        (FlowChoiceType::SignInMethod, Some(MfaType::Password), false),
        (FlowChoiceType::Other, None, false),
        (FlowChoiceType::SsoProvider, None, false),
        (FlowChoiceType::Account, None, true),
        (FlowChoiceType::Account, None, false),
        (FlowChoiceType::Other, None, false),
        (FlowChoiceType::MfaMethod, Some(MfaType::Sms), false),
    ];
    assert_eq!(actual, expected);
    assert_eq!(found.choices[4].provider.as_deref(), Some("idp"));
    assert_eq!(found.choices[8].target.as_deref(), Some("•••12"));
}

#[test]
fn obstacles_and_actions_have_an_order() {
    let box_of = |checked| json!({"ref": "a-1", "label": "Trust this device", "checked": checked});
    for (parts, obstacle) in [
        (
            json!({"consent": element(), "skip": element()}),
            Some(PageObstacle::ConsentBanner),
        ),
        (
            json!({"skip": element(), "remember": box_of(false)}),
            Some(PageObstacle::Offer),
        ),
        (
            json!({"remember": box_of(false)}),
            Some(PageObstacle::RememberDevice),
        ),
        (json!({"remember": box_of(true)}), None),
    ] {
        assert_eq!(findings(parts.clone()).obstacle, obstacle, "{parts}");
    }
    let push = |number: Value| json!({"text": "Approve the login", "number": number});
    for (parts, kind, detail) in [
        (
            json!({"captcha": true, "push": push(json!(null))}),
            ExternalActionKind::Captcha,
            None,
        ),
        (
            json!({"push": push(json!("42")), "passkey": true}),
            ExternalActionKind::Push,
            Some("42"),
        ),
        (
            json!({"push": push(json!(null))}),
            ExternalActionKind::Push,
            Some("Approve the login"),
        ),
        (
            json!({"passkey": true, "email_link": "Link sent"}),
            ExternalActionKind::Passkey,
            None,
        ),
        (
            json!({"email_link": "Link sent"}),
            ExternalActionKind::EmailLink,
            Some("Link sent"),
        ),
    ] {
        let action = findings(parts.clone()).external.unwrap();
        assert_eq!(
            (action.kind, action.detail.as_deref()),
            (kind, detail),
            "{parts}"
        );
    }
    let found = findings(json!({"error": "Wrong password"}));
    assert_eq!(found.website_error.as_deref(), Some("Wrong password"));
}

#[test]
fn evidence_is_compared_with_the_page_before() {
    let before = PageMark::from(&inspected(json!({})));
    let with_account = PageMark::from(&inspected(json!({"evidence": {"account": "hidden"}})));
    let same = json!({"evidence": {"account": "visible"}});
    let other = json!({"url_digest": "b", "evidence": {"cookies": "b"}});
    let evidence = |parts: &Value, before| {
        let found = convert(&inspected(parts.clone()), before).unwrap().evidence;
        (
            found.url_changed,
            found.cookies_changed,
            found.member_content,
        )
    };
    assert_eq!(evidence(&other, None), (false, false, false));
    assert_eq!(evidence(&other, Some(&before)), (true, true, false));
    assert_eq!(evidence(&same, None), (false, false, false));
    assert_eq!(evidence(&same, Some(&before)), (false, false, true));
    assert_eq!(evidence(&same, Some(&with_account)), (false, false, false));
    for (log_out, log_in, is_member) in [
        ("visible", "absent", true),
        ("visible", "visible", true),
        ("hidden", "absent", true),
        ("hidden", "hidden", true),
        ("hidden", "visible", false),
        ("absent", "absent", false),
    ] {
        let parts = json!({"evidence": {"log_out": log_out, "log_in": log_in}});
        let found = evidence(&parts, None);
        assert_eq!(found, (false, false, is_member), "{parts}");
    }
}

#[test]
fn earliest_lasting_cookie_of_the_login_has_its_expiry() {
    let cookie = |id: &str, minutes: i64| {
        let at = Timestamp(Utc::now() + TimeDelta::minutes(minutes));
        json!({"id": id, "expires_at": at})
    };
    let with = |cookies: Vec<Value>| inspected(json!({"evidence": {"session_cookies": cookies}}));
    let (device, old) = (cookie("device", 90), cookie("session", 100));
    let before = PageMark::from(&with(vec![device.clone(), old.clone()]));
    let expiry = |cookies: Vec<Value>, before| {
        let found = convert(&with(cookies), before).unwrap().session_expiry;
        found.map(|expiry| expiry.cookie)
    };
    let unchanged = vec![device.clone(), old];
    assert_eq!(expiry(unchanged.clone(), Some(&before)), None);
    assert_eq!(expiry(unchanged, None), None);
    let without_expiry = json!({"id": "other"});
    let set_again = vec![
        device,
        cookie("session", 500),
        cookie("refresh", 900),
        cookie("form", 30),
        without_expiry,
    ];
    assert_eq!(expiry(set_again, Some(&before)).as_deref(), Some("session"));
}
