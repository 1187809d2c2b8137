//! The hosted login page in a browser, with a fake API whose states of the login flow the scenarios
//! set, and with the API of the server. The scenarios are programs in `tests/clients/login`.

mod sites;

use std::fs;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    auth_events::AuthEvents,
    auth_login::{TestConnection, credential, dev_with},
    dev::Dev,
    login_sites::LoginSites,
    python::{clients, output_of},
};

const LOGO: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40"><style>circle { fill: #0b6e4f }</style><circle cx="20" cy="20" r="20"/></svg>"##;

/// Runs a scenario to its end, in a browser of the server that has the page. Fails if one of its
/// checks does.
async fn run(scenario: &str, arguments: &[&str], settings: &[&str]) {
    let dev = Dev::with(settings).await;
    run_on(&dev, scenario, arguments, &Value::Null).await;
    dev.finish().await;
}

/// Runs a scenario on a server, with a login in progress.
async fn run_on(dev: &Dev, scenario: &str, arguments: &[&str], login: &Value) {
    let browser = dev.browser(json!({})).await;
    // Files of a killed client are removed with the directory.
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new("node");
    command
        .env("TMPDIR", temporary.path())
        .env("BERTH_TEST_LOGIN", login.to_string())
        .arg(clients().join("login").join(scenario))
        .arg(browser["cdp_ws_url"].as_str().unwrap())
        .arg(format!("{}/", dev.base_url))
        .args(arguments);
    output_of(&mut command).await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_any_state() {
    run("accessibility.mjs", &[], &[]).await;
}

#[tokio::test]
async fn keyboard_alone_leads_from_the_link_to_success() {
    run("keyboard.mjs", &[], &[]).await;
}

#[tokio::test]
async fn reloads_lost_connections_and_sleep_miss_no_state() {
    run("connection.mjs", &[], &[]).await;
}

#[tokio::test]
async fn used_incomplete_and_expired_links_are_explained() {
    run("links.mjs", &[], &[]).await;
}

#[tokio::test]
async fn answers_are_sent_and_their_rejections_explained() {
    run("answers.mjs", &[], &[]).await;
}

#[tokio::test]
async fn permitted_origin_alone_embeds_the_page() {
    let settings = ["--login-frame-origins", "http://localhost:4780"];
    run("embedded.mjs", &[], &settings).await;
}

#[tokio::test]
async fn theme_languages_and_size_are_within_their_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let logo = directory.path().join("logo.svg");
    fs::write(&logo, LOGO).unwrap();
    let settings = [
        "--login-name",
        "Acme <Travel>",
        "--login-accent",
        "#0b6e4f,#6fd8b2",
        "--login-background",
        "#eef4f1,#0b1210",
        "--login-logo-file",
        logo.to_str().unwrap(),
    ];
    run("appearance.mjs", &[], &settings).await;
}

#[tokio::test]
async fn person_signs_in_to_a_site_on_the_page() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "password.test";
    let connection = TestConnection::create(&dev, &sites, site, json!({})).await;
    let begun = connection.begin().await;
    let login = json!({
        "url": begun["hosted_url"],
        "user": sites.ada.user,
        "password": sites.ada.password,
    });
    run_on(&dev, "real.mjs", &[], &login).await;
    connection.assert_logged_in(&sites, site, &sites.ada).await;
    dev.finish().await;
}

/// Begins a login with stored values, and waits until an action of the person is requested.
/// Returns the connection, the link, and the events after the request.
async fn begin<'a>(
    dev: &'a Dev,
    sites: &LoginSites,
    site: &str,
) -> (TestConnection<'a>, Value, AuthEvents) {
    let name = credential(dev, site, &sites.ada, json!({})).await;
    let fields = json!({"credential": {"name": name}});
    let connection = TestConnection::create(dev, sites, site, fields).await;
    let begun = connection.begin().await;
    let mut events = connection.events().await;
    events.request().await;
    (connection, begun["hosted_url"].clone(), events)
}

#[tokio::test]
async fn person_sees_the_site_where_an_action_is_requested() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let (_, url, mut events) = begin(&dev, &sites, "push.test").await;
    run_on(&dev, "real.mjs", &[], &json!({ "url": url })).await;
    sites.approve_push().await;
    let rest = events.rest().await;
    let last = &rest.last().unwrap().data;
    assert_eq!(last["flow_status"], "SUCCESS", "{last:#}");
    dev.finish().await;
}

#[tokio::test]
async fn person_clicks_a_captcha_in_the_live_view() {
    let sites = LoginSites::serve().await;
    let dev = dev_with(&sites, &[]).await;
    let site = "captcha.test";
    let (connection, url, _events) = begin(&dev, &sites, site).await;
    let target = place_of(&dev, "#captcha").await;
    let login = json!({"url": url, "target": target});
    run_on(&dev, "real.mjs", &[], &login).await;
    connection.assert_logged_in(&sites, site, &sites.ada).await;
    dev.finish().await;
}

/// Returns where the middle of an element is on the screen of the only browser, as parts of its
/// width and height.
async fn place_of(dev: &Dev, selector: &str) -> Value {
    let browser = dev.get("/browsers").await.body[0]["session_id"].clone();
    let path = format!("/browsers/{}/automation/execute", browser.as_str().unwrap());
    let code = format!(
        "const box = await page.locator('{selector}').boundingBox();
        const middle = {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        return page.evaluate(({{x, y}}) => [
          (screenX + (outerWidth - innerWidth) / 2 + x) / screen.width,
          (screenY + outerHeight - innerHeight + y) / screen.height,
        ], middle)"
    );
    let found = dev.post(&path, json!({ "code": code })).await;
    assert_eq!(found.body["success"], true, "{}", found.body);
    found.body["result"].clone()
}
