//! Common DevTools clients, connected with only a browser's URL.

use std::{collections::BTreeMap, path::Path};

use axum::{Router, response::Html, routing::get};
use chromiumoxide::Browser;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio::{net::TcpListener, process::Command};

use crate::support::{
    dev::Dev,
    python::{self, clients, python},
};

const CONNECTIONS: usize = 10;
const MESSAGES: u32 = 1000;

const SITE: &str = r#"<!doctype html><title>Greetings</title>
<input id="name"><button id="greet" onclick="greeting.textContent = `Hello, ${document.getElementById('name').value}`">Greet</button>
<p id="greeting"></p>"#;

/// The output of a client program.
#[derive(Debug, Deserialize)]
struct ClientOutput {
    greeting: String,
    title: String,
    #[serde(default)]
    talks: Vec<BTreeMap<String, u32>>,
    #[serde(default)]
    results: Vec<f64>,
    #[serde(default)]
    lines: Vec<String>,
}

async fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = Router::new().route("/", get(|| async { Html(SITE) }));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

/// Runs a client program to its end. It fails if one of its checks does.
async fn run(
    program: impl AsRef<Path>,
    script: &str,
    endpoint: &str,
    connections: usize,
) -> ClientOutput {
    // Files of a killed client are removed with the directory.
    let temporary = tempfile::tempdir().unwrap();
    let mut command = Command::new(program.as_ref());
    command
        .env("TMPDIR", temporary.path())
        .arg(clients().join(script))
        .args([endpoint, &site().await, &connections.to_string()]);
    let output = python::run(&mut command).await;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let parsed = serde_json::from_str(&stdout);
    parsed.unwrap_or_else(|_| {
        panic!(
            "{}\n{stdout}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn assert_clicked(output: &ClientOutput) {
    assert_eq!(
        (output.greeting.as_str(), output.title.as_str()),
        ("Hello, Ada", "Greetings")
    );
}

fn assert_conversations(output: &ClientOutput) {
    let expected = BTreeMap::from([("right".to_owned(), MESSAGES), ("lines".to_owned(), 10)]);
    assert_eq!(output.talks, vec![expected; CONNECTIONS]);
}

async fn endpoint(dev: &Dev) -> String {
    let browser = dev.browser(json!({})).await;
    browser["cdp_ws_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn playwright_for_node_works_with_only_the_url() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    let output = run("node", "playwright.mjs", &endpoint, CONNECTIONS).await;
    assert_clicked(&output);
    assert_conversations(&output);
    // Playwright also accepts the browser's HTTP address, and requests the WebSocket's URL there.
    let (address, query) = endpoint.split_once("/cdp?").unwrap();
    let address = address.replacen("ws", "http", 1);
    let output = run("node", "playwright.mjs", &format!("{address}?{query}"), 0).await;
    assert_clicked(&output);
    dev.finish().await;
}

#[tokio::test]
async fn playwright_continues_over_a_resumable_connection() {
    const LOSSES: u32 = 5;
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    let output = run("node", "resumable.mjs", &endpoint, LOSSES as usize).await;
    assert_clicked(&output);
    let rounds = (0..LOSSES).map(f64::from);
    let expected: Vec<f64> = rounds.flat_map(|round| [round, round + 0.5]).collect();
    assert_eq!(output.results, expected);
    let lines: Vec<String> = (0..LOSSES).map(|round| format!("line {round}")).collect();
    assert_eq!(output.lines, lines);
    dev.finish().await;
}

#[tokio::test]
async fn playwright_for_python_works_with_only_the_url() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    let output = run(python(), "playwright_client.py", &endpoint, CONNECTIONS).await;
    assert_clicked(&output);
    assert_conversations(&output);
    dev.finish().await;
}

#[tokio::test]
async fn puppeteer_works_with_only_the_url() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    assert_clicked(&run("node", "puppeteer.mjs", &endpoint, 0).await);
    dev.finish().await;
}

#[tokio::test]
async fn chromiumoxide_connects_and_acts() {
    let dev = Dev::start().await;
    let created = dev.browser(json!({})).await;
    let url = created["cdp_ws_url"].as_str().unwrap();
    let (browser, mut handler) = Browser::connect(url).await.unwrap();
    let events = tokio::spawn(async move { while handler.next().await.is_some() {} });
    let page = browser.new_page(site().await).await.unwrap();
    let name = page.find_element("#name").await.unwrap();
    name.click().await.unwrap().type_str("Ada").await.unwrap();
    let greet = page.find_element("#greet").await.unwrap();
    greet.click().await.unwrap();
    let greeting = page.find_element("#greeting").await.unwrap();
    assert_eq!(
        greeting.inner_text().await.unwrap().as_deref(),
        Some("Hello, Ada")
    );
    assert_eq!(
        page.get_title().await.unwrap().as_deref(),
        Some("Greetings")
    );
    page.close().await.unwrap();
    drop(browser);
    events.abort();
    dev.finish().await;
}
