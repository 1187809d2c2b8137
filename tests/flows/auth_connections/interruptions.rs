//! Logins that end without success, or are interrupted.

use serde_json::{Value, json};

use crate::support::{
    auth_events::AuthEvents,
    auth_login::{TestConnection, credential, dev_with},
    dev::{Dev, State},
    login_sites::LoginSites,
    wait::until,
};

/// Begins a login without a credential at the password form. Returns its first request.
async fn begin<'a>(dev: &'a Dev, sites: &LoginSites) -> (TestConnection<'a>, AuthEvents, Value) {
    let connection = TestConnection::create(dev, sites, "password.test", json!({})).await;
    let mut events = connection.login().await;
    let request = events.request().await;
    (connection, events, request)
}

/// Returns the status and the error code with which a login ends.
async fn outcome(events: &mut AuthEvents) -> (String, String) {
    let rest = events.rest().await;
    let last = &rest.last().unwrap().data;
    let text = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(last["who"], "none", "{last:#}");
    (text("flow_status"), text("error_code"))
}

fn ended(status: &str, code: &str) -> (String, String) {
    (status.to_owned(), code.to_owned())
}

async fn assert_no_browsers(dev: &Dev) {
    until("the browsers have ended", async || {
        (dev.get("/browsers").await.body == json!([])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn site_that_is_down_or_leads_elsewhere_ends_the_login() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let internal = "http://169.254.169.254/latest/meta-data/".to_owned();
    let elsewhere = sites.secure_url("elsewhere.test", "/login");
    for (site, url, code) in [
        ("down.test", None, "site_unavailable"),
        ("redirect.test", Some(elsewhere), "origin_not_permitted"),
        ("redirect.test", Some(internal), "internal_address"),
    ] {
        if let Some(url) = &url {
            sites.redirect_to(url);
        }
        let name = credential(&dev, site, &sites.ada, json!({})).await;
        let fields = json!({"credential": {"name": name}});
        let connection = TestConnection::create(&dev, &sites, site, fields).await;
        let mut events = connection.login().await;
        assert_eq!(outcome(&mut events).await, ended("FAILED", code), "{site}");
        assert_eq!(sites.places_of(&sites.ada.password), [""; 0], "{site}");
        let deleted = dev.delete(&connection.path).await;
        assert_eq!(deleted.status, 204);
        dev.delete(&format!("/credentials/{name}")).await;
    }
    assert_no_browsers(&dev).await;
    dev.finish().await;
}

#[tokio::test]
async fn page_of_an_internal_address_gets_no_value() {
    let sites = LoginSites::serve().await;
    // The addresses of this machine, which have the sites, are no longer permitted.
    let dev = dev_with(&sites, &["--allow-networks", "192.0.2.0/24"]).await;
    let name = credential(&dev, "password.test", &sites.ada, json!({})).await;
    let fields = json!({"credential": {"name": name}});
    let connection = TestConnection::create(&dev, &sites, "password.test", fields).await;
    let mut events = connection.login().await;
    assert_eq!(
        outcome(&mut events).await,
        ended("FAILED", "internal_address")
    );
    assert!(sites.received().is_empty());
    dev.finish().await;
}

#[tokio::test]
async fn login_is_canceled_or_loses_its_browser_or_its_connection() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let (connection, mut events, _) = begin(&dev, &sites).await;
    let second = dev
        .post(&format!("{}/login", connection.path), json!({}))
        .await;
    second.assert_error(409, "flow_in_progress");
    let cancel = format!("{}/cancel", connection.path);
    let canceled = dev.post(&cancel, json!({})).await;
    assert_eq!(canceled.status, 200);
    assert_eq!(
        canceled.body["flow_status"], "CANCELED",
        "{}",
        canceled.body
    );
    assert_eq!(outcome(&mut events).await, ended("CANCELED", "canceled"));
    dev.post(&cancel, json!({}))
        .await
        .assert_error(409, "not_awaiting_input");
    assert_no_browsers(&dev).await;

    let mut events = connection.login().await;
    events.request().await;
    let browser = dev.get("/browsers").await.body[0]["session_id"].clone();
    dev.delete(&format!("/browsers/{}", browser.as_str().unwrap()))
        .await;
    assert_eq!(outcome(&mut events).await, ended("FAILED", "browser_lost"));

    let mut events = connection.login().await;
    events.request().await;
    assert_eq!(dev.delete(&connection.path).await.status, 204);
    let rest = events.rest().await;
    assert_eq!(rest.last().unwrap().data["event"], "error", "{rest:#?}");
    assert_no_browsers(&dev).await;
    dev.finish().await;
}

#[tokio::test]
async fn wrong_stored_password_is_entered_once_and_then_requested() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "password.test";
    sites.set_password(site, &sites.ada, "another-password-of-ada");
    let name = credential(&dev, site, &sites.ada, json!({})).await;
    let fields = json!({"credential": {"name": name}});
    let connection = TestConnection::create(&dev, &sites, site, fields).await;
    let mut events = connection.login().await;
    let request = events.request().await;
    assert!(request["website_error"].is_string(), "{request:#}");
    let fields = request["fields"].as_array().unwrap();
    let password = fields.iter().find(|field| field["type"] == "password");
    assert_eq!(password.unwrap()["reason"], "rejected", "{request:#}");
    assert_eq!(sites.received_by(site).len(), 1);
    dev.finish().await;
}

#[tokio::test]
async fn credential_of_another_site_is_neither_entered_nor_changed() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "password.test";
    let name = credential(&dev, site, &sites.grace, json!({})).await;
    let fields = json!({"credential": {"name": name}});
    let connection = TestConnection::create(&dev, &sites, site, fields).await;
    let path = format!("/credentials/{name}");
    assert_eq!(dev.delete(&path).await.status, 204);
    let other = json!({
        "name": name,
        "domain": "totp.test",
        "values": {"username": sites.grace.user, "password": sites.grace.password},
    });
    let other = dev.post("/credentials", other).await.body;
    let mut events = connection.login().await;
    events.request().await;
    assert_eq!(sites.received(), []);
    let answer = json!({"fields": {"username": sites.ada.user, "password": sites.ada.password}});
    connection.submit(answer).await;
    assert_eq!(outcome(&mut events).await, ended("SUCCESS", ""));
    assert_eq!(sites.places_of(&sites.grace.password), [""; 0]);
    let unchanged = dev.get(&path).await.body;
    assert_eq!(
        unchanged["updated_at"], other["updated_at"],
        "{unchanged:#}"
    );
    dev.finish().await;
}

#[tokio::test]
async fn answers_that_do_not_fit_are_refused() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let (connection, _events, request) = begin(&dev, &sites).await;
    let submit = format!("{}/submit", connection.path);
    let interaction = request["interaction_id"].clone();
    for (answer, status, code) in [
        (json!({}), 400, "bad_request"),
        (json!({"fields": {}}), 400, "bad_request"),
        (json!({"fields": {"other": "x"}}), 400, "bad_request"),
        (json!({"fields": {"password": "x"}}), 400, "bad_request"),
        (json!({"fields": {"password": ""}}), 400, "bad_request"),
        (
            json!({"fields": {"password": "x".repeat(4097)}}),
            400,
            "bad_request",
        ),
        (json!({"field_values": {"a": "x"}}), 400, "bad_request"),
        (
            json!({"field_values": {"a": "x"}, "interaction_id": interaction}),
            400,
            "bad_request",
        ),
        (json!({"sso_provider": "google"}), 400, "bad_request"),
        (json!({"mfa_option_id": "sms"}), 400, "bad_request"),
        (
            json!({"fields": {"password": "x"}, "sso_provider": "google"}),
            400,
            "bad_request",
        ),
    ] {
        let refused = dev.post(&submit, answer.clone()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.body["code"].as_str()),
            (status, Some(code)),
            "{answer}: {}",
            refused.body
        );
    }
    let unknown = "/auth/connections/conn_00000000000000000000000000";
    for path in ["submit", "cancel", "login"] {
        let url = format!("{unknown}/{path}");
        let missing = dev.post(&url, json!({"fields": {"a": "b"}})).await;
        assert!(matches!(missing.status.as_u16(), 400 | 404), "{path}");
    }
    for query in ["limit=0", "limit=101", "type=other", "offset=-1"] {
        let refused = dev
            .get(&format!("{}/timeline?{query}", connection.path))
            .await;
        refused.assert_error(400, "bad_request");
    }
    assert_eq!(sites.received(), []);
    dev.finish().await;
}

#[tokio::test]
async fn login_of_a_killed_server_ends_with_a_reason() {
    let sites = LoginSites::serve().await;
    let state = State::new();
    let flags = [sites.resolver_flag(), sites.certificate_flag()];
    let options: Vec<&str> = flags.iter().map(String::as_str).collect();
    let dev = Dev::start_in(state, &options).await;
    let (connection, _events, _) = begin(&dev, &sites).await;
    let path = connection.path.clone();
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &options).await;
    let ended = until("the login has ended", async || {
        let found = dev.get(&path).await.body;
        (found["flow_status"] != "IN_PROGRESS").then_some(found)
    })
    .await;
    assert_eq!(ended["error_code"], "controller_lost", "{ended:#}");
    let connection = TestConnection { dev: &dev, path };
    let mut events = connection.login().await;
    events.request().await;
    dev.finish().await;
}
