//! `POST /login/inspect`: the state of the document, its address, and the cookies.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::StatusCode as HttpStatus,
    response::{Html, Redirect},
    routing::get,
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};

use super::{inspect, inspect_with};
use crate::{
    routes::agent::credentials::pages::{FormSite, variant},
    support::{
        agent::{Start, TestAgent},
        page::Page,
        wait::until,
    },
};

const LOGIN: &str = "<form><label>User name <input name=user></label>\
    <label>Password <input type=password name=pass></label><button>Log in</button></form>";

/// A site of which some pages wait until the test lets them continue.
struct SlowSite {
    url: String,
    gate: Arc<Semaphore>,
}

impl SlowSite {
    async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let gate = Arc::new(Semaphore::new(0));
        let with_image = format!("{LOGIN}<img src=/image>");
        let app = Router::new()
            .route("/", get(async || Html(LOGIN)))
            .route("/slow", get(slow))
            .route("/image", get(slow))
            .route("/loading", get(async || Html(with_image)))
            .route(
                "/missing",
                get(async || (HttpStatus::NOT_FOUND, Html("<p>not here"))),
            )
            .with_state(gate.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            url: format!("http://www.berth-site.test:{port}"),
            gate,
        }
    }
}

async fn slow(State(gate): State<Arc<Semaphore>>) -> Html<&'static str> {
    let _ = gate.acquire().await.map(|permit| permit.forget());
    Html("<p>slow")
}

/// Starts a browser whose tab has been inspected before it shows a page.
async fn observed_browser() -> (TestAgent, Page) {
    let agent = FormSite::browser(Start::headless()).await;
    let page = Page::of(&agent).await;
    let first = inspect(&agent).await;
    assert_eq!(first["addresses"], json!([]));
    assert_eq!(first["fields"], json!([]));
    (agent, page)
}

#[tokio::test]
async fn document_has_its_address_and_its_changes() {
    let site = SlowSite::serve().await;
    let (agent, mut page) = observed_browser().await;
    page.go_to(&format!("{}/?token=1#code=2", site.url)).await;
    let first = inspect(&agent).await;
    assert_eq!(first["url"], format!("{}/", site.url));
    assert_eq!(first["addresses"], json!(["127.0.0.1"]));
    assert_eq!(first["http_status"], 200);
    let second = inspect(&agent).await;
    for part in ["url_digest", "document"] {
        assert!(first[part].is_string());
        assert_eq!(second[part], first[part]);
    }
    page.evaluate("history.pushState(null, '', '?token=2')")
        .await;
    let third = inspect(&agent).await;
    assert_ne!(third["url_digest"], first["url_digest"]);
    assert_eq!(third["url"], first["url"]);
    assert_eq!(third["document"], first["document"]);
    page.go_to(&format!("{}/missing", site.url)).await;
    let fourth = inspect(&agent).await;
    assert_ne!(fourth["document"], first["document"]);
    assert_eq!(fourth["http_status"], 404);
    assert_eq!(fourth["unreachable"], false);
    agent.stop().await;
}

#[tokio::test]
async fn redirect_of_another_address_is_known() {
    let site = SlowSite::serve().await;
    let (agent, mut page) = observed_browser().await;
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = format!("{}/", site.url);
    let redirect = async move || Redirect::to(&target);
    let app = Router::new().route("/", get(redirect));
    tokio::spawn(async move { axum::serve(listener, app).await });
    page.call(
        "Page.navigate",
        json!({"url": format!("http://{address}/")}),
    )
    .await;
    page.loaded(|address| address.contains("berth-site")).await;
    let inspected = inspect(&agent).await;
    assert_eq!(inspected["url"], format!("{}/", site.url));
    assert_eq!(inspected["addresses"], json!(["127.0.0.2", "127.0.0.1"]));
    assert_eq!(inspected["http_status"], 200);
    agent.stop().await;
}

#[tokio::test]
async fn site_that_is_down_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (agent, mut page) = observed_browser().await;
    let url = format!("http://www.berth-site.test:{port}/login");
    page.call("Page.navigate", json!({ "url": url })).await;
    let inspected = until("an error page", async || {
        let inspected = inspect(&agent).await;
        (inspected["unreachable"] == true).then_some(inspected)
    })
    .await;
    assert_eq!(inspected["url"], url);
    assert_eq!(inspected["addresses"], json!([]));
    assert_eq!(inspected["http_status"], Value::Null);
    assert_eq!(inspected["fields"], json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn document_that_was_loaded_before_has_no_known_address() {
    let site = SlowSite::serve().await;
    let agent = FormSite::browser(Start::headless()).await;
    let mut page = Page::of(&agent).await;
    page.go_to(&format!("{}/", site.url)).await;
    let inspected = inspect(&agent).await;
    assert_eq!(inspected["addresses"], json!([]));
    assert_eq!(inspected["http_status"], Value::Null);
    assert_eq!(inspected["fields"][1]["kind"], "password");
    agent.stop().await;
}

#[tokio::test]
async fn state_follows_the_document() {
    let site = SlowSite::serve().await;
    let (agent, mut page) = observed_browser().await;
    page.go_to(&format!("{}/", site.url)).await;
    let short = json!({"wait_ms": 200, "quiet_ms": 20});
    let start = inspect(&agent).await;
    page.evaluate("{ location.href = '/slow' }").await;
    let navigating = until("a navigation", async || {
        let inspected = inspect_with(&agent, &short).await;
        (inspected["state"] == "navigating").then_some(inspected)
    })
    .await;
    assert_eq!(navigating["fields"], json!([]));
    for part in ["url", "url_digest", "document"] {
        assert_eq!(navigating[part], start[part]);
    }
    site.gate.add_permits(1);
    let inspected = inspect(&agent).await;
    assert_eq!(
        (&inspected["state"], &inspected["url"]),
        (&json!("stable"), &json!(format!("{}/slow", site.url)))
    );
    let url = format!("{}/loading", site.url);
    page.call("Page.navigate", json!({ "url": url })).await;
    let loading = inspect_with(&agent, &short).await;
    assert_eq!(loading["state"], "loading");
    assert_eq!(loading["fields"][0]["kind"], "username");
    site.gate.add_permits(1);
    assert_eq!(inspect(&agent).await["state"], "stable");
    page.evaluate("{ setInterval(() => document.body.append('.'), 5) }")
        .await;
    let long = json!({"wait_ms": 1100, "quiet_ms": 1000});
    assert_eq!(inspect_with(&agent, &long).await["state"], "changing");
    page.go_to(&format!("{}/", site.url)).await;
    // A navigation that the page aborts is over.
    page.evaluate("{ location.href = '/slow'; setTimeout(() => stop()) }")
        .await;
    assert_eq!(inspect(&agent).await["state"], "stable");
    agent.stop().await;
}

#[tokio::test]
async fn busy_page_is_changing_until_it_is_done() {
    let busy = variant(
        "busy",
        &format!("<div id=busy aria-busy=true>Wait</div>{LOGIN}"),
    );
    let later = variant(
        "later",
        &format!("<script>setTimeout(() => document.body.innerHTML = '{LOGIN}', 100)</script>"),
    );
    let site = FormSite::serve(&[busy.clone(), later.clone()]).await;
    let (agent, mut page) = observed_browser().await;
    page.go_to(&site.url(&busy)).await;
    let short = json!({"wait_ms": 100, "quiet_ms": 20});
    assert_eq!(inspect_with(&agent, &short).await["state"], "changing");
    page.evaluate("busy.removeAttribute('aria-busy')").await;
    assert_eq!(inspect(&agent).await["state"], "stable");
    // A form that a script renders after the page is loaded.
    page.go_to(&site.url(&later)).await;
    let inspected = inspect_with(&agent, &json!({"quiet_ms": 500})).await;
    assert_eq!(inspected["fields"][1]["kind"], "password");
    agent.stop().await;
}

#[tokio::test]
async fn page_that_hangs_is_504() {
    let site = SlowSite::serve().await;
    let (agent, mut page) = observed_browser().await;
    page.go_to(&format!("{}/", site.url)).await;
    let hang = "{ const request = new XMLHttpRequest(); request.open('GET', '/slow', false);\
        setTimeout(() => request.send()) }";
    page.evaluate(hang).await;
    let request = agent.post("/login/inspect").json(&json!({}));
    let (status, response) = agent.answer(request).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{response}");
    assert_eq!(response["code"], "timeout");
    agent.stop().await;
}

#[tokio::test]
async fn cookies_that_scripts_cannot_read_are_evidence() {
    let page_variant = variant("page", "<p>page");
    let site = FormSite::serve(std::slice::from_ref(&page_variant)).await;
    let (agent, mut page) = observed_browser().await;
    let url = site.url(&page_variant);
    page.go_to(&url).await;
    let set = |name: &str, value: &str, domain: &str, http_only: bool| json!({"name": name, "value": value, "domain": domain, "path": "/", "httpOnly": http_only});
    let cookies = async || inspect(&agent).await["evidence"]["cookies"].clone();
    for (cookie, is_evidence) in [
        (set("theme", "dark", "www.berth-site.test", false), false),
        (set("other", "1", "www.other-site.test", true), false),
        (set("__cf_bm", "1", ".berth-site.test", true), false),
        (
            set("sid", "planted-2xw9-value", "login.berth-site.test", true),
            true,
        ),
        // Another value of the same cookie.
        (
            set("sid", "planted-5ah1-value", "login.berth-site.test", true),
            false,
        ),
        (
            set("auth", "planted-8rt3-value", ".berth-site.test", true),
            true,
        ),
    ] {
        let before = cookies().await;
        page.call("Network.setCookie", cookie.clone()).await;
        let after = cookies().await;
        assert_eq!(before != after, is_evidence, "{cookie}");
    }
    let inspected = inspect(&agent).await;
    assert!(!inspected.to_string().contains("planted"), "{inspected}");
    assert!(!agent.log().contains("planted"));
    agent.stop().await;
}
