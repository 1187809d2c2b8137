//! `POST /login/act`

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{act, inspect};
use crate::{
    routes::agent::credentials::pages::{FormSite, Variant, variant},
    support::{
        agent::{Start, TestAgent},
        page::Page,
        requests::wrong_fields,
        wait::until,
    },
};

/// Records the clicks that a page gets.
const RECORD: &str = "<script>
    var clicks = [];
    for (const type of ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click']) {
      addEventListener(type, ({target}) => clicks.push(`${type} ${target.id}`), true);
    }
    </script>";
const METHODS: &str = "<title>Sign in</title><h1>Verify your identity</h1>\
    <button id=sms>Text message</button><button id=app>Authenticator app</button>";

/// Returns the body of a request for an element.
fn request(reference: &Value, kind: &str) -> Value {
    json!({
        "ref": reference,
        "kind": kind,
        "domain": "login.berth-site.test",
        "allow_http": true,
    })
}

/// Serves pages, and shows the first one.
async fn show(variants: &[Variant]) -> (FormSite, TestAgent, Page) {
    let site = FormSite::serve(variants).await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&site.url(&variants[0])).await;
    (site, agent, page)
}

/// Asserts that a request fails, and that the page gets no click.
async fn refuse(agent: &TestAgent, page: &mut Page, body: &Value, status: u16, code: &str) {
    page.evaluate("{ clicks = [] }").await;
    let (actual, response) = act(agent, body).await;
    assert_eq!(actual.as_u16(), status, "{body}: {response}");
    assert_eq!(response["code"], code, "{body}: {response}");
    assert_eq!(page.evaluate("clicks").await, json!([]), "{body}");
}

#[tokio::test]
async fn element_is_clicked_as_by_a_mouse() {
    let (site, agent, mut page) = show(&[variant("page", &format!("{METHODS}{RECORD}"))]).await;
    let inspected = inspect(&agent).await;
    let reference = &inspected["choices"][1]["ref"];
    // An element keeps its reference.
    assert_eq!(inspect(&agent).await["choices"][1]["ref"], *reference);
    let (status, response) = act(&agent, &request(reference, "click")).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    let [origin, _] = site.origins();
    assert_eq!(
        response,
        json!({"outcome": "clicked", "url": format!("{origin}/pages/page")})
    );
    let expected: Vec<String> = ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]
        .map(|event| format!("{event} app"))
        .into();
    assert_eq!(page.evaluate("clicks").await, json!(expected));
    agent.stop().await;
}

#[tokio::test]
async fn box_is_checked_once() {
    let html = "<h1>Sign in</h1><form><input type=password aria-label=Password>\
        <input type=checkbox id=box style='opacity: 0; position: absolute'>\
        <label for=box>Trust this device</label><button>Sign in</button></form>";
    let (_site, agent, mut page) = show(&[variant("page", html)]).await;
    let inspected = inspect(&agent).await;
    let body = request(&inspected["remember"]["ref"], "check");
    for (outcome, checked) in [("clicked", true), ("unchanged", true)] {
        let (status, response) = act(&agent, &body).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        assert_eq!(response["outcome"], outcome);
        assert_eq!(page.evaluate("box.checked").await, checked);
    }
    assert_eq!(inspect(&agent).await["remember"]["checked"], true);
    agent.stop().await;
}

#[tokio::test]
async fn banner_of_another_site_is_dismissed() {
    let banner = "<p>We use cookies.</p><button onclick=\"top.postMessage('yes', '*')\">Accept</button>\
        <button onclick=\"top.postMessage('no', '*')\">Reject</button>";
    let html = "<p>Page</p><iframe src=OTHER/pages/banner style='width: 400px; height: 200px'></iframe>\
        <script>var answers = []; onmessage = ({data}) => answers.push(data)</script>";
    let variants = [variant("page", html), variant("banner", banner)];
    let (_site, agent, mut page) = show(&variants).await;
    let inspected = inspect(&agent).await;
    let reference = &inspected["consent"]["ref"];
    let (status, response) = act(&agent, &request(reference, "click")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{response}");
    let mut elsewhere = request(reference, "dismiss");
    elsewhere["domain"] = "unrelated-site.test".into();
    let (status, response) = act(&agent, &elsewhere).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{response}");
    assert_eq!(page.evaluate("answers").await, json!([]));
    let (status, response) = act(&agent, &request(reference, "dismiss")).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    page.until("answers", |answers| *answers == json!(["no"]))
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn element_that_is_not_as_inspected_is_not_clicked() {
    let (site, agent, mut page) = show(&[variant("page", &format!("{METHODS}{RECORD}"))]).await;
    let unknown = request(&json!("0123456789abcdef-1"), "click");
    refuse(&agent, &mut page, &unknown, 409, "page_changed").await;
    let inspected = inspect(&agent).await;
    let (status, response) = act(&agent, &request(&inspected["choices"][0]["ref"], "check")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    assert_eq!(wrong_fields(&response), ["kind"]);
    for (change, code) in [
        (
            "app.textContent = 'Authenticator app of Grace'",
            "page_changed",
        ),
        ("app.remove()", "page_changed"),
        ("app.replaceWith(app.cloneNode(true))", "page_changed"),
        ("app.hidden = true", "not_clickable"),
        ("app.disabled = true", "not_clickable"),
        ("app.setAttribute('aria-disabled', 'true')", "not_clickable"),
        (
            "document.body.insertAdjacentHTML('beforeend', '<div style=\"position: fixed; inset: 0\"></div>')",
            "not_clickable",
        ),
    ] {
        page.go_to(&format!(
            "{}?{}",
            site.url(&variant("page", "")),
            change.len()
        ))
        .await;
        let inspected = inspect(&agent).await;
        let body = request(&inspected["choices"][1]["ref"], "click");
        refuse(&agent, &mut page, &unknown, 409, "page_changed").await;
        page.evaluate(&format!("{{ {change} }}")).await;
        refuse(&agent, &mut page, &body, 409, code).await;
    }
    // Another document of the same address, and another tab.
    let inspected = inspect(&agent).await;
    let body = request(&inspected["choices"][0]["ref"], "click");
    page.go_to(&format!("{}?again", site.url(&variant("page", ""))))
        .await;
    refuse(&agent, &mut page, &body, 409, "page_changed").await;
    let inspected = inspect(&agent).await;
    let body = request(&inspected["choices"][0]["ref"], "click");
    let _other = Page::open(&agent, &site.url(&variant("page", ""))).await;
    refuse(&agent, &mut page, &body, 409, "page_changed").await;
    agent.stop().await;
}

#[tokio::test]
async fn origins_that_are_not_permitted_get_no_click() {
    let html = format!(
        "<title>Sign in</title><h1>Sign in</h1>\
         <a href=OTHER/oauth/authorize onclick='event.preventDefault()'>Sign in with Google</a>\
         <form action=OTHER/login onsubmit='event.preventDefault()'>\
         <button>Sign in with GitHub</button></form>\
         <a href=/login onclick='event.preventDefault()'>Sign in with Okta</a>\
         <iframe src=OTHER/pages/frame style='width: 300px; height: 60px'></iframe>{RECORD}"
    );
    let frame = "<div role=button>Sign in with Apple</div>";
    let variants = [variant("page", &html), variant("frame", frame)];
    let (_site, agent, mut page) = show(&variants).await;
    let inspected = inspect(&agent).await;
    let choices = inspected["choices"].as_array().unwrap();
    let providers: Vec<&str> = choices
        .iter()
        .filter_map(|choice| choice["provider"].as_str())
        .collect();
    assert_eq!(
        providers,
        ["google", "github", "okta", "apple"],
        "{inspected}"
    );
    for (choice, is_own) in choices.iter().zip([false, false, true, false]) {
        let body = request(&choice["ref"], "click");
        for (field, value) in [
            ("domain", json!("unrelated-site.test")),
            ("allow_http", json!(false)),
        ] {
            let mut refused = body.clone();
            refused[field] = value;
            refuse(&agent, &mut page, &refused, 403, "origin_refused").await;
        }
        if !is_own {
            refuse(&agent, &mut page, &body, 403, "origin_refused").await;
        }
        let mut permitted = body.clone();
        permitted["allowed_domains"] = json!(["other-site.test"]);
        let (status, response) = act(&agent, &permitted).await;
        assert_eq!(status, StatusCode::OK, "{choice}: {response}");
        assert_eq!(response["outcome"], "clicked");
    }
    agent.stop().await;
}

#[tokio::test]
async fn click_opens_a_window_that_is_inspected_next() {
    let opener = "<title>Sign in</title><h1>Sign in</h1>\
        <button onclick=\"open('/pages/window', 'login', 'width=500,height=500')\">Sign in with Google</button>";
    let window = "<title>Window</title><form><label>Email <input type=email name=mail></label>\
        <label>Password <input type=password name=p></label><button>Log in</button></form>";
    let variants = [variant("page", opener), variant("window", window)];
    let (_site, agent, _page) = show(&variants).await;
    let inspected = inspect(&agent).await;
    let body = request(&inspected["choices"][0]["ref"], "click");
    let (status, response) = act(&agent, &body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    let inspected = until("the window", async || {
        let inspected = inspect(&agent).await;
        let url = inspected["url"].as_str().unwrap();
        url.ends_with("/window").then_some(inspected)
    })
    .await;
    assert_eq!(inspected["fields"][0]["kind"], "email");
    agent.stop().await;
}

#[tokio::test]
async fn link_leads_to_the_next_page() {
    let first = "<title>Home</title><nav><a href=/pages/login>Log in</a></nav><h1>Home</h1>";
    let login = "<title>Login</title><form><input name=user><input type=password name=pass></form>";
    let variants = [variant("page", first), variant("login", login)];
    let (_site, agent, mut page) = show(&variants).await;
    let inspected = inspect(&agent).await;
    let digest = inspected["url_digest"].clone();
    let body = request(&inspected["login_link"]["ref"], "click");
    let (status, response) = act(&agent, &body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    page.loaded(|address| address.ends_with("/login")).await;
    let inspected = inspect(&agent).await;
    assert_ne!(inspected["url_digest"], digest);
    assert_eq!(inspected["addresses"], json!(["127.0.0.1"]));
    assert_eq!(inspected["fields"][1]["kind"], "password");
    agent.stop().await;
}

#[tokio::test]
async fn invalid_request_is_400() {
    let agent = Start::without_browser().listening().await;
    let valid = json!({"ref": "0123456789abcdef-1", "kind": "click", "domain": "example.com"});
    for (field, value, wrong) in [
        ("ref", json!(null), "ref"),
        ("ref", json!(""), "ref"),
        ("ref", json!("A-1"), "ref"),
        ("ref", json!("a".repeat(65)), "ref"),
        ("ref", json!(1), "ref"),
        ("kind", json!(null), "kind"),
        ("kind", json!("type"), "kind"),
        ("domain", json!(null), "domain"),
        ("domain", json!("https://example.com"), "domain"),
        ("domain", json!("a.".repeat(130)), "domain"),
        ("allowed_domains", json!("example.com"), "allowed_domains"),
        ("allowed_domains", json!(["a b"]), "allowed_domains[0]"),
        (
            "allowed_domains",
            json!(vec!["example.com"; 33]),
            "allowed_domains",
        ),
        ("allow_http", json!(1), "allow_http"),
    ] {
        let mut body = valid.clone();
        body[field] = value;
        let (status, response) = act(&agent, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {response}");
        assert_eq!(wrong_fields(&response), [wrong], "{body}: {response}");
    }
    agent.stop().await;
}
