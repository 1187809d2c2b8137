//! Several control processes with one database, one blob store and one fleet of registered hosts.

use std::{path::Path, process::Command, sync::Arc};

use futures::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use crate::flows::pool_queue::{self, OPTIONS as SIMULATED_FLEET};
use crate::support::{
    agent::Start,
    dev::{Answer, Dev, State, berth},
    fleet_agent::{FLEET, browser_ends, control_variables, host_is, join},
    postgres::PostgresDatabase,
    printed::print,
    processes,
    s3::S3Server,
    state::private_directory,
    wait::{in_time, until},
};

/// Two processes. The first one leads.
pub(super) struct Processes {
    pub(super) s3: Option<S3Server>,
    /// The settings of further ones.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) leader: Dev,
    pub(super) other: Dev,
}

impl Processes {
    pub(super) async fn start() -> Processes {
        let s3 = S3Server::start().await;
        let mut processes = Self::with_blobs(s3.variables()).await;
        processes.s3 = Some(s3);
        processes
    }

    /// Starts them with the settings of their blob store.
    async fn with_blobs(blobs: Vec<(&'static str, String)>) -> Processes {
        let state = State::with(Some(PostgresDatabase::required()));
        let leader = Dev::start_with_variables(state, &FLEET, blobs.clone()).await;
        let variables = [blobs, control_variables(&leader)].concat();
        let other = leader.beside(&FLEET, variables.clone()).await;
        Processes {
            s3: None,
            variables,
            leader,
            other,
        }
    }

    async fn finish(self) {
        self.other.finish().await;
        self.leader.finish().await;
    }
}

pub(super) fn path(browser: &Value) -> String {
    format!("/browsers/{}", browser["session_id"].as_str().unwrap())
}

/// Returns the DevTools URL of a browser at another process than the one that gave it.
fn cdp_url_at(dev: &Dev, browser: &Value) -> String {
    let url = browser["cdp_ws_url"].as_str().unwrap();
    let (_, rest) = url.split_once("/browsers/").unwrap();
    let base = dev.base_url.replacen("http", "ws", 1);
    format!("{base}/browsers/{rest}")
}

type DevTools = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Connects with the token of the browser's own URL.
pub(super) async fn connect(dev: &Dev, browser: &Value) -> DevTools {
    let url = cdp_url_at(dev, browser);
    let (client, _) = in_time("a handshake", connect_async(url)).await.unwrap();
    client
}

/// Calls a method of DevTools.
pub(super) async fn call(client: &mut DevTools) {
    let command = json!({"id": 1, "method": "Browser.getVersion"}).to_string();
    client.send(Message::text(command)).await.unwrap();
    let answer = in_time("an answer", client.next()).await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("product"), "{answer}");
}

/// Waits until a process that did not lead leads.
pub(super) async fn begins_to_lead(dev: &Dev) {
    until("another leader", async || {
        let log = dev.log();
        log.contains("this control process leads now").then_some(())
    })
    .await;
}

/// Returns the command of a further process with the database of `dev` and a new state directory.
pub(super) fn further(dev: &Dev, fleet: &str, state_dir: &Path) -> Command {
    let mut command = berth(&["control", "--fleet", fleet]);
    command.args(["--listen", "127.0.0.1:0", "--state-dir"]);
    command.arg(state_dir).envs(dev.variables());
    command
}

async fn count(dev: &Dev, query: &str) -> i64 {
    let rows = dev.rows(query).await;
    rows[0].try_get_by_index(0).unwrap()
}

#[tokio::test]
async fn each_process_serves_each_browser() {
    let processes = Processes::start().await;
    let Processes { leader, other, .. } = &processes;
    let (agent, host) = join(leader, Start::headless()).await;
    let browser = other.browser(json!({"name": "n"})).await;
    for dev in [leader, other] {
        let found = dev.get("/browsers/n").await;
        assert_eq!(found.body["session_id"], browser["session_id"]);
        let execute = format!("{}/automation/execute", path(&browser));
        let answer = dev.post(&execute, json!({"code": "return 1 + 1"})).await;
        assert_eq!(answer.body["result"], 2, "{}", answer.body);
        // A token is valid at each process.
        let mut client = connect(dev, &browser).await;
        call(&mut client).await;
    }
    let renamed = leader.patch("/browsers/n", json!({"name": "m"})).await;
    assert_eq!(renamed.status, StatusCode::OK, "{}", renamed.body);
    assert_eq!(other.get("/browsers/m").await.status, StatusCode::OK);

    let mut streaming = connect(leader, &browser).await;
    assert_eq!(other.delete("/browsers/m").await.status, 204);
    let close = in_time("a Close frame", streaming.next()).await;
    let Some(Ok(Message::Close(Some(close)))) = close else {
        panic!("{close:?}");
    };
    assert_eq!(u16::from(close.code), 4004, "{close:?}");
    host_is(leader, &host, "ready").await;
    for dev in [leader, other] {
        dev.get(&path(&browser))
            .await
            .assert_error(404, "not_found");
        dev.delete(&path(&browser))
            .await
            .assert_error(404, "not_found");
        let token = browser["cdp_ws_url"].as_str().unwrap();
        let token = token.split_once("jwt=").unwrap().1;
        let linked = format!("{}/json/list?jwt={token}", path(&browser));
        let answer = Answer::of(dev.anonymous(Method::GET, &linked)).await;
        answer.assert_error(410, "session_ended");
    }
    agent.stop().await;
    processes.finish().await;
}

#[tokio::test]
async fn another_process_continues_when_the_leader_is_killed() {
    let Processes {
        s3: _s3,
        variables,
        leader,
        other,
    } = Processes::start().await;
    // Agents report to an address at which a process always answers.
    let (agent, host) = join(&other, Start::headless()).await;
    let browser = leader.browser(json!({"timeout_seconds": 10})).await;
    let mut client = connect(&other, &browser).await;
    // Its state directory has the secrets of all.
    let _state = leader.kill().await;
    call(&mut client).await;
    begins_to_lead(&other).await;
    call(&mut client).await;
    let found = other.get(&path(&browser)).await;
    assert_eq!(found.status, StatusCode::OK, "{}", found.body);
    drop(client);
    // Its idle time is up although its own process has died.
    browser_ends(&other, &browser).await;
    host_is(&other, &host, "ready").await;
    let third = other.beside(&FLEET, variables).await;
    let browser = third.browser(json!({})).await;
    assert_eq!(other.delete(&path(&browser)).await.status, 204);
    agent.stop().await;
    third.finish().await;
    other.finish().await;
}

/// Connects with the parameters and the subprotocol of a resumable connection.
async fn connect_resumable(dev: &Dev, browser: &Value, query: &str) -> DevTools {
    let url = format!("{}&{query}", cdp_url_at(dev, browser));
    let mut request = url.into_client_request().unwrap();
    let protocol = HeaderValue::from_static("berth.resume.v1");
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let (client, _) = in_time("a handshake", connect_async(request))
        .await
        .unwrap();
    client
}

async fn next_text(client: &mut DevTools) -> String {
    let message = in_time("a message", client.next()).await.unwrap().unwrap();
    message.to_text().unwrap().to_owned()
}

#[tokio::test]
async fn devtools_connection_is_resumed_through_another_process() {
    let Processes {
        leader,
        other,
        variables,
        s3: _s3,
    } = Processes::start().await;
    let third = leader.beside(&FLEET, variables).await;
    let (agent, _) = join(&other, Start::headless()).await;
    let browser = other.browser(json!({})).await;
    let mut client = connect_resumable(&leader, &browser, "resume=new").await;
    let greeting: Value = serde_json::from_str(&next_text(&mut client).await).unwrap();
    let version = |number| format!(r#"{number} {{"id":{number},"method":"Browser.getVersion"}}"#);
    client.send(Message::text(version(1))).await.unwrap();
    assert!(next_text(&mut client).await.starts_with(r#"1 {"id":1,"#));
    let _state = leader.kill().await;
    let query = format!("resume={}&received=1", greeting["id"].as_str().unwrap());
    let mut client = connect_resumable(&other, &browser, &query).await;
    let resumed: Value = serde_json::from_str(&next_text(&mut client).await).unwrap();
    assert_eq!(resumed["received"], 1);
    client.send(Message::text(version(2))).await.unwrap();
    assert!(next_text(&mut client).await.starts_with(r#"2 {"id":2,"#));
    // The other one stops in an orderly way.
    other.finish().await;
    let query = query.replace("received=1", "received=2");
    let mut client = connect_resumable(&third, &browser, &query).await;
    let resumed: Value = serde_json::from_str(&next_text(&mut client).await).unwrap();
    assert_eq!(resumed["received"], 2);
    agent.stop().await;
    third.finish().await;
}

#[tokio::test]
async fn work_of_a_killed_process_is_finished() {
    let Processes { leader, other, .. } = Processes::start().await;
    let (agent, host) = join(&leader, Start::headless()).await;
    let browser = other.browser(json!({"name": "ending"})).await;
    let freeze = |signal| processes::signal(agent.pid(), signal);
    freeze(Signal::SIGSTOP);
    let delete = other.request(Method::DELETE, &path(&browser)).send();
    let deleting = tokio::spawn(delete);
    let ending = "SELECT count(*) FROM browsers WHERE state = 'deleting'";
    until("a browser that is ending", async || {
        (count(&leader, ending).await == 1).then_some(())
    })
    .await;
    other.kill().await;
    assert!(deleting.await.unwrap().is_err());
    until("the end of the browser", async || {
        (count(&leader, ending).await == 0).then_some(())
    })
    .await;
    freeze(Signal::SIGCONT);
    host_is(&leader, &host, "ready").await;
    let again = leader.browser(json!({"name": "ending"})).await;
    assert_eq!(leader.delete(&path(&again)).await.status, 204);
    agent.stop().await;
    leader.finish().await;
}

#[tokio::test]
async fn creation_of_a_killed_process_leaves_nothing() {
    let Processes { leader, other, .. } = Processes::start().await;
    let (agent, host) = join(&leader, Start::headless()).await;
    let freeze = |signal| processes::signal(agent.pid(), signal);
    freeze(Signal::SIGSTOP);
    let create = other.request(Method::POST, "/browsers");
    let create = create.json(&json!({"headless": true, "name": "n"}));
    let creating = tokio::spawn(create.send());
    let leased = "SELECT count(*) FROM hosts WHERE state = 'leased'";
    until("a leased host", async || {
        (count(&leader, leased).await == 1).then_some(())
    })
    .await;
    other.kill().await;
    assert!(creating.await.unwrap().is_err());
    until("no browser", async || {
        (count(&leader, "SELECT count(*) FROM browsers").await == 0).then_some(())
    })
    .await;
    freeze(Signal::SIGCONT);
    host_is(&leader, &host, "ready").await;
    let browser = leader.browser(json!({"name": "n"})).await;
    assert_eq!(leader.delete(&path(&browser)).await.status, 204);
    agent.stop().await;
    leader.finish().await;
}

#[tokio::test]
async fn change_of_access_is_effective_at_each_process() {
    let processes = Processes::start().await;
    let Processes { leader, other, .. } = &processes;
    let created = leader.post("/org/api_keys", json!({"name": "k"})).await;
    let key = created.body["key"].as_str().unwrap();
    let uses = async |dev: &Dev| {
        let request = dev.anonymous(Method::GET, "/browsers").bearer_auth(key);
        Answer::of(request).await.status
    };
    assert_eq!(uses(other).await, StatusCode::OK);
    let id = created.body["id"].as_str().unwrap();
    let deleted = leader.delete(&format!("/org/api_keys/{id}")).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    until("the end of the key", async || {
        (uses(other).await == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    processes.finish().await;
}

#[tokio::test]
async fn use_at_one_process_keeps_a_browser_at_all() {
    let processes = Processes::start().await;
    let Processes { leader, other, .. } = &processes;
    let (agent, _) = join(leader, Start::headless()).await;
    let browser = leader.browser(json!({"timeout_seconds": 10})).await;
    let mut client = connect(other, &browser).await;
    let used = "SELECT count(*) FROM browsers WHERE used_at > created_at + 12000";
    until("a use after the idle timeout", async || {
        (count(leader, used).await == 1).then_some(())
    })
    .await;
    call(&mut client).await;
    drop(client);
    browser_ends(leader, &browser).await;
    browser_ends(other, &browser).await;
    agent.stop().await;
    processes.finish().await;
}

#[tokio::test]
async fn process_with_other_settings_is_refused() {
    let s3 = S3Server::start().await;
    let state = State::with(Some(PostgresDatabase::required()));
    let leader = Dev::start_with_variables(state, &FLEET, s3.variables()).await;
    let other = tempfile::tempdir().unwrap();
    let control = |fleet| further(&leader, fleet, other.path());
    let mut without_secrets = control("registered");
    without_secrets.envs(s3.variables());
    let mut without_bucket = control("registered");
    without_bucket.envs(control_variables(&leader));
    let mut with_local_hosts = control("local");
    with_local_hosts.envs(s3.variables());
    with_local_hosts.envs(control_variables(&leader));
    for (command, expected) in [
        (without_secrets, "with other settings"),
        (without_bucket, "with other settings"),
        (with_local_hosts, "uses it; stop that one first"),
    ] {
        let refused = print(command).await;
        assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    leader.finish().await;
}

/// Returns the settings of a blob store in a directory.
fn in_directory(directory: &Path) -> Vec<(&'static str, String)> {
    let url = format!("file://{}", directory.display());
    vec![("BERTH_BLOB_STORE", url)]
}

#[tokio::test]
async fn processes_share_a_directory_for_replays() {
    let (blobs, other_blobs) = (private_directory(), private_directory());
    let processes = Processes::with_blobs(in_directory(blobs.path())).await;
    let Processes { leader, other, .. } = &processes;
    let (agent, host) = join(leader, Start::on_screen()).await;
    let browser = other.post("/browsers", json!({})).await.body;
    let replays = format!("{}/replays", path(&browser));
    let started = other.post(&replays, json!({})).await;
    assert_eq!(started.status, StatusCode::CREATED, "{}", started.body);
    assert_eq!(other.delete(&path(&browser)).await.status, 204);
    host_is(leader, &host, "ready").await;
    let replay = format!("{replays}/{}", started.body["replay_id"].as_str().unwrap());
    for dev in [leader, other] {
        let video = until("the file", async || {
            let video = dev.request(Method::GET, &replay).send().await.unwrap();
            (video.status() == StatusCode::OK).then_some(video)
        })
        .await;
        assert!(!video.bytes().await.unwrap().is_empty());
    }
    let mut elsewhere = further(leader, "registered", &other.state_dir().join("third"));
    elsewhere.envs(control_variables(leader));
    elsewhere.envs(in_directory(other_blobs.path()));
    let refused = print(elsewhere).await;
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("with other settings"),
        "{}",
        refused.stderr
    );
    agent.stop().await;
    processes.finish().await;
}

/// Starts three processes with simulated hosts and a directory for blobs. The first one leads.
pub(super) async fn start_three(blobs: &Path) -> [Dev; 3] {
    let state = State::with(Some(PostgresDatabase::required()));
    let blobs = in_directory(blobs);
    let leader = Dev::start_with_variables(state, &SIMULATED_FLEET, blobs.clone()).await;
    let variables = [blobs, control_variables(&leader)].concat();
    let second = leader.beside(&SIMULATED_FLEET, variables.clone()).await;
    let third = leader.beside(&SIMULATED_FLEET, variables).await;
    [leader, second, third]
}

#[tokio::test]
async fn clients_of_three_processes_wait_for_a_pool_in_one_order() {
    let blobs = private_directory();
    let devs = start_three(blobs.path()).await;
    let devs: Vec<Arc<Dev>> = devs.into_iter().map(Arc::new).collect();
    pool_queue::clients_are_served_in_order(&devs).await;
    for dev in devs.into_iter().rev() {
        Arc::into_inner(dev).unwrap().finish().await;
    }
}

#[tokio::test]
async fn clients_of_a_killed_process_do_not_hold_up_those_behind_them() {
    let processes = Processes::start().await;
    let settings =
        json!({"name": "n", "size": 1, "headless": true, "fill_rate_per_minute": 10_000});
    processes.leader.post("/browser_pools", settings).await;
    let acquire = |dev: &Dev| {
        let request = dev.request(Method::POST, "/browser_pools/n/acquire");
        request.json(&json!({"acquire_timeout_seconds": 120}))
    };
    // It also leads, and starts the browser.
    let lost = tokio::spawn(acquire(&processes.leader).send());
    let waiting_is = async |count: u64| {
        until("a waiting client", async || {
            let pool = processes.other.get("/browser_pools/n").await.body;
            (pool["waiting_count"] == count).then_some(())
        })
        .await;
    };
    waiting_is(1).await;
    let next = tokio::spawn(Answer::of(acquire(&processes.other)));
    waiting_is(2).await;
    let (_agent, _host) = join(&processes.other, Start::headless()).await;
    processes.leader.kill().await;
    assert!(lost.await.unwrap().is_err());
    let served = next.await.unwrap();
    assert_eq!(served.status, StatusCode::OK, "{}", served.body);
    call(&mut connect(&processes.other, &served.body).await).await;
    let pool = processes.other.get("/browser_pools/n").await.body;
    assert_eq!(pool["waiting_count"], 0, "{pool}");
    processes.other.finish().await;
}
