//! The clients that people have, connected with a browser's URL and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::dev::Dev;

const CONNECTIONS: usize = 10;
const MESSAGES: u32 = 1000;

const SITE: &str = r#"<!doctype html><title>Greetings</title>
<input id="name"><button id="greet" onclick="greeting.textContent = `Hello, ${document.getElementById('name').value}`">Greet</button>
<p id="greeting"></p>"#;

/// What a client's program prints.
#[derive(Debug, Deserialize)]
struct Found {
    greeting: String,
    title: String,
    #[serde(default)]
    talks: Vec<BTreeMap<String, u32>>,
}

async fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = Router::new().route("/", get(|| async { Html(SITE) }));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The Python that has the client: the one `make` names, else where `make` puts it.
fn python() -> PathBuf {
    let beside_the_program =
        || Path::new(env!("CARGO_BIN_EXE_berth")).join("../../venv/bin/python");
    std::env::var_os("BERTH_TEST_PYTHON").map_or_else(beside_the_program, PathBuf::from)
}

/// Runs a client's program to its end, which a failed check within it makes a bad one.
async fn run(program: impl AsRef<Path>, script: &str, endpoint: &str, connections: usize) -> Found {
    // What a client that is killed has left goes with the folder.
    let temporary = tempfile::tempdir().unwrap();
    let output = Command::new(program.as_ref())
        .env("TMPDIR", temporary.path())
        .arg(clients().join(script))
        .args([endpoint, &site().await, &connections.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| {
            panic!(
                "{} (does `make test` run this?): {error}",
                program.as_ref().display()
            )
        });
    let stdout = String::from_utf8_lossy(&output.stdout);
    let found = serde_json::from_str(&stdout);
    found.unwrap_or_else(|_| {
        panic!(
            "{}\n{stdout}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn assert_clicked(found: &Found) {
    assert_eq!(
        (found.greeting.as_str(), found.title.as_str()),
        ("Hello, Ada", "Greetings")
    );
}

fn assert_talked(found: &Found) {
    let whole = BTreeMap::from([("right".to_owned(), MESSAGES), ("lines".to_owned(), 10)]);
    assert_eq!(found.talks, vec![whole; CONNECTIONS]);
}

async fn endpoint(dev: &Dev) -> String {
    let browser = dev.browser(json!({})).await;
    browser["cdp_ws_url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn playwrights_node_client_works_with_the_url_alone() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    let found = run("node", "playwright.mjs", &endpoint, CONNECTIONS).await;
    assert_clicked(&found);
    assert_talked(&found);
    // It also takes the browser's HTTP address, and asks that for the WebSocket.
    let (address, query) = endpoint.split_once("/cdp?").unwrap();
    let address = address.replacen("ws", "http", 1);
    let found = run("node", "playwright.mjs", &format!("{address}?{query}"), 0).await;
    assert_clicked(&found);
    dev.finish().await;
}

#[tokio::test]
async fn playwrights_python_client_works_with_the_url_alone() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    let found = run(python(), "playwright_client.py", &endpoint, CONNECTIONS).await;
    assert_clicked(&found);
    assert_talked(&found);
    dev.finish().await;
}

#[tokio::test]
async fn puppeteer_works_with_the_url_alone() {
    let dev = Dev::start().await;
    let endpoint = endpoint(&dev).await;
    assert_clicked(&run("node", "puppeteer.mjs", &endpoint, 0).await);
    dev.finish().await;
}
