//! Logins in which a person takes part.

use serde_json::{Value, json};

use crate::support::{
    auth_events::AuthEvents,
    auth_login::{TestConnection, credential, dev_with},
    dev::Dev,
    login_sites::LoginSites,
};

/// Begins a login with the stored user name and password. Returns its first request to the person.
async fn begin<'a>(
    dev: &'a Dev,
    sites: &LoginSites,
    site: &str,
    fields: Value,
) -> (TestConnection<'a>, AuthEvents, Value) {
    let name = credential(dev, site, &sites.ada, json!({})).await;
    let mut request = json!({"credential": {"name": name}});
    for (key, value) in fields.as_object().unwrap() {
        request[key] = value.clone();
    }
    let connection = TestConnection::create(dev, sites, site, request).await;
    let mut events = connection.login().await;
    let request = events.request().await;
    (connection, events, request)
}

/// Asserts that a login ends with success, and requests nothing more before.
async fn assert_success(mut events: AuthEvents) {
    let mut last = Value::Null;
    while let Some(event) = events.next().await {
        last = event.data;
        assert_ne!(last["who"], "user", "{last:#}");
    }
    assert_eq!(last["flow_status"], "SUCCESS", "{last:#}");
}

#[tokio::test]
async fn code_by_text_message_is_requested() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "sms.test";
    let (connection, mut events, request) = begin(&dev, &sites, site, json!({})).await;
    let field = &request["fields"][0];
    assert_eq!(field["type"], "code", "{request:#}");
    let wrong = json!({
        "field_values": {field["id"].as_str().unwrap(): "000000"},
        "interaction_id": request["interaction_id"],
    });
    connection.submit(wrong).await;
    let request = events.request().await;
    assert_eq!(request["fields"][0]["reason"], "rejected", "{request:#}");
    let name = request["discovered_fields"][0]["name"].as_str().unwrap();
    let code = sites.sms_code().await;
    connection.submit(json!({"fields": {name: code}})).await;
    assert_success(events).await;
    connection.assert_logged_in(&sites, site, &sites.ada).await;
    dev.finish().await;
}

#[tokio::test]
async fn approval_on_a_device_is_waited_for() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let (connection, events, request) = begin(&dev, &sites, "push.test", json!({})).await;
    assert_eq!(
        request["flow_step"], "AWAITING_EXTERNAL_ACTION",
        "{request:#}"
    );
    assert!(
        request["external_action_message"].is_string(),
        "{request:#}"
    );
    sites.approve_push().await;
    assert_success(events).await;
    connection
        .assert_logged_in(&sites, "push.test", &sites.ada)
        .await;
    dev.finish().await;
}

#[tokio::test]
async fn new_password_is_requested_and_stored() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "change.test";
    let (connection, events, request) = begin(&dev, &sites, site, json!({})).await;
    let fields = request["discovered_fields"].as_array().unwrap();
    let new = "A-new-password-of-ada-1";
    let values: serde_json::Map<String, Value> = fields
        .iter()
        .map(|field| (field["name"].as_str().unwrap().to_owned(), json!(new)))
        .collect();
    connection.submit(json!({ "fields": values })).await;
    assert_success(events).await;
    assert_eq!(sites.password(site, &sites.ada), new);
    sites.expire_sessions();
    let events = connection.login().await;
    assert_success(events).await;
    dev.finish().await;
}

#[tokio::test]
async fn captcha_is_left_to_the_person_in_the_live_view() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let (connection, events, request) = begin(&dev, &sites, "captcha.test", json!({})).await;
    assert_eq!(
        request["flow_step"], "AWAITING_EXTERNAL_ACTION",
        "{request:#}"
    );
    assert!(
        request["live_view_url"]
            .as_str()
            .unwrap()
            .contains("/live?jwt=")
    );
    let browser = dev.get("/browsers").await.body[0]["session_id"].clone();
    let path = format!("/browsers/{}/automation/execute", browser.as_str().unwrap());
    let code = "await page.locator('#captcha').check();
        await page.waitForFunction(() => captcha.form.captcha_token.value)";
    let solved = dev.post(&path, json!({"code": code})).await;
    assert_eq!(solved.body["success"], true, "{}", solved.body);
    assert_success(events).await;
    connection
        .assert_logged_in(&sites, "captcha.test", &sites.ada)
        .await;
    dev.finish().await;
}
