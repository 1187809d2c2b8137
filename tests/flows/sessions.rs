//! DevTools clients when a process between them and their browser ends, and the tokens in their
//! URLs when the API key ends.

use futures::{SinkExt, StreamExt};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, protocol::CloseFrame},
};

use crate::support::{
    dev::{Answer, Dev},
    processes,
    wait::{WAIT_TIMEOUT, until},
};

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(browser: &Value) -> Self {
        let url = browser["cdp_ws_url"].as_str().unwrap();
        let connected = timeout(WAIT_TIMEOUT, connect_async(url))
            .await
            .expect("a response in time");
        let mut client = Self(connected.unwrap_or_else(|error| panic!("{error}")).0);
        let command = json!({ "id": 1, "method": "Browser.getVersion" }).to_string();
        client.0.send(Message::text(command)).await.unwrap();
        let answer = client.next().await.expect("an answer").expect("a message");
        assert!(
            answer.to_text().unwrap().contains("HeadlessChrome"),
            "{answer}"
        );
        client
    }

    async fn next(&mut self) -> Option<Result<Message, tokio_tungstenite::tungstenite::Error>> {
        timeout(WAIT_TIMEOUT, self.0.next())
            .await
            .expect("a message in time")
    }

    /// Waits for the Close frame.
    async fn closed(&mut self) -> CloseFrame {
        loop {
            match self.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame,
                Some(Ok(_)) => {}
                other => panic!("no Close frame: {other:?}"),
            }
        }
    }
}

/// Returns the first process whose command line contains `part` but not `without`. For Chromium
/// this is the browser process, not one of its children.
fn first_process(dev: &Dev, part: &str, without: &str) -> Pid {
    let found = dev.descendants().into_iter();
    let mut found =
        found.filter(|(_, command)| command.contains(part) && !command.contains(without));
    found.next().unwrap_or_else(|| panic!("no {part} runs")).0
}

#[tokio::test]
async fn killed_agent_closes_its_clients_and_the_same_url_works_again() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let mut client = Client::connect(&browser).await;
    kill(first_process(&dev, " agent ", "--type="), Signal::SIGKILL).unwrap();
    let close = client.closed().await;
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1011, "the connection to the browser is lost")
    );
    assert_reconnects(&browser).await;
    dev.finish().await;
}

#[tokio::test]
async fn killed_chromium_closes_its_clients_and_the_same_url_works_again() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let mut client = Client::connect(&browser).await;
    kill(
        first_process(&dev, "--user-data-dir", "--type="),
        Signal::SIGKILL,
    )
    .unwrap();
    let close = client.closed().await;
    assert_eq!(u16::from(close.code), 4001, "{}", close.reason);
    assert!(
        close.reason.starts_with("browser_restarted: Chromium"),
        "{}",
        close.reason
    );
    assert_reconnects(&browser).await;
    dev.finish().await;
}

/// Waits until a client can reconnect. While the browser restarts, clients are held or refused.
async fn assert_reconnects(browser: &Value) {
    let url = browser["cdp_ws_url"].as_str().unwrap();
    until("the browser is back", async || {
        connect_async(url).await.ok()
    })
    .await;
    Client::connect(browser).await;
}

#[tokio::test]
async fn deleting_the_browser_closes_its_clients_with_a_reason() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let mut client = Client::connect(&browser).await;
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let (deleted, close) = tokio::join!(dev.delete(&path), client.closed());
    assert_eq!(deleted.status, 204);
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (4004, "session_ended: the browser has ended")
    );
    let gone = connect_async(browser["cdp_ws_url"].as_str().unwrap())
        .await
        .unwrap_err();
    assert!(gone.to_string().contains("410"), "{gone}");
    dev.finish().await;
}

#[tokio::test]
async fn stopping_the_server_closes_its_clients_with_a_reason() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let mut client = Client::connect(&browser).await;
    let (_, close) = tokio::join!(dev.finish(), client.closed());
    assert_eq!(
        (u16::from(close.code), close.reason.as_str()),
        (1001, "the server is shutting down")
    );
}

#[tokio::test]
async fn killed_control_disconnects_its_clients_and_leaves_no_processes() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let mut client = Client::connect(&browser).await;
    // This waits until all its processes have ended.
    dev.crash().await;
    let end = client.next().await;
    assert!(matches!(end, Some(Err(_)) | None), "{end:?}");
}

/// Whether a connection to a listening socket of the process has unread bytes.
fn has_unread_bytes(server: Pid) -> bool {
    let links = std::fs::read_dir(format!("/proc/{server}/fd")).unwrap();
    let sockets: Vec<String> = links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
        .filter_map(|target| {
            Some(
                target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect())
        .collect();
    let (address, state, queues, inode) = (1, 3, 4, 9);
    let listens =
        |row: &&Vec<&str>| row[state] == "0A" && sockets.iter().any(|socket| socket == row[inode]);
    let listening: Vec<&str> = rows
        .iter()
        .filter(listens)
        .map(|row| row[address])
        .collect();
    rows.iter().any(|row| {
        row[state] == "01"
            && listening.contains(&row[address])
            && !row[queues].ends_with(":00000000")
    })
}

#[tokio::test]
async fn agent_killed_during_a_call_is_a_bad_gateway_without_retry() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let path = format!(
        "/browsers/{}/json/version",
        browser["session_id"].as_str().unwrap()
    );
    let agent = first_process(&dev, " agent ", "--type=");
    // The agent is stopped, so that the call has reached it but has no response when it is killed.
    processes::stop(agent.as_raw().cast_unsigned()).await;
    let call = dev.get(&path);
    let kill_when_reached = async {
        until("the call has reached the agent", async || {
            has_unread_bytes(agent).then_some(())
        })
        .await;
        kill(agent, Signal::SIGKILL).unwrap();
    };
    let (answer, ()) = tokio::join!(call, kill_when_reached);
    answer.assert_error(502, "bad_gateway");
    assert_eq!(answer.header("x-should-retry"), "false");
    until("the browser is back", async || {
        (dev.get(&path).await.status == 200).then_some(())
    })
    .await;
    dev.finish().await;
}

/// Creates a key and returns it with URLs of the browser that were issued for it, directly and
/// through the first of them.
async fn key_with_urls(dev: &Dev, browser: &Value) -> (Value, [String; 2]) {
    let key = dev.post("/org/api_keys", json!({"name": "k"})).await.body;
    let path = format!("/browsers/{}", browser["session_id"].as_str().unwrap());
    let request = dev.anonymous(Method::GET, &path);
    let seen = Answer::of(request.bearer_auth(key["key"].as_str().unwrap())).await;
    let version_url = |url: &Value| {
        let token = url.as_str().unwrap().split_once("?jwt=").unwrap().1;
        format!("{path}/json/version?jwt={token}")
    };
    let direct = version_url(&seen.body["cdp_ws_url"]);
    let version = Answer::of(dev.anonymous(Method::GET, &direct)).await;
    let derived = version_url(&version.body["webSocketDebuggerUrl"]);
    assert_eq!(status_of(dev, &derived).await, StatusCode::OK);
    (key, [direct, derived])
}

async fn status_of(dev: &Dev, url: &str) -> StatusCode {
    Answer::of(dev.anonymous(Method::GET, url)).await.status
}

#[tokio::test]
async fn tokens_end_with_the_key_that_they_were_issued_for() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let (_, untouched) = key_with_urls(&dev, &browser).await;
    let path = |key: &Value| format!("/org/api_keys/{}", key["id"].as_str().unwrap());

    // At once in the process that ends the key.
    let (deleted, of_deleted) = key_with_urls(&dev, &browser).await;
    assert_eq!(dev.delete(&path(&deleted)).await.status, 204);
    let (rotated, of_rotated) = key_with_urls(&dev, &browser).await;
    let rotation = format!("{}/rotate", path(&rotated));
    let at_once = json!({"expire_in_days": 0});
    assert_eq!(dev.post(&rotation, at_once).await.status, 201);
    for url in of_deleted.iter().chain(&of_rotated) {
        assert_eq!(status_of(&dev, url).await, StatusCode::UNAUTHORIZED);
    }

    // Soon after another process has ended it.
    for change in ["DELETE FROM api_keys", "UPDATE api_keys SET expires_at = 1"] {
        let (key, urls) = key_with_urls(&dev, &browser).await;
        let id = key["id"].as_str().unwrap();
        dev.sql(&format!("{change} WHERE id = '{id}'")).await;
        for url in &urls {
            until("the end of the token", async || {
                let status = status_of(&dev, url).await;
                (status == StatusCode::UNAUTHORIZED).then_some(())
            })
            .await;
        }
    }
    for url in &untouched {
        assert_eq!(status_of(&dev, url).await, StatusCode::OK);
    }
    dev.finish().await;
}
