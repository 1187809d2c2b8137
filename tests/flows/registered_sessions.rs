//! Browsers on hosts that have registered themselves.

use std::time::Duration;

use berth::{
    api::ids::HostId,
    control::fleet::{AgentAccess, AgentClient, AgentEndpoint},
};
use futures::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::{connect_async, tungstenite::Message};

use crate::support::{
    agent::{Start, TestAgent},
    dev::{Answer, Dev},
    fleet_agent::{
        browser_ends, control_tls, fleet_control, fleet_control_again, host_is, host_when, join,
        joining, ready,
    },
    fleet_host::join_token,
    processes,
    wait::{in_time, until},
};

const TIMEOUT: Duration = Duration::from_secs(20);

fn path(browser: &Value) -> String {
    format!("/browsers/{}", browser["session_id"].as_str().unwrap())
}

fn cdp_url(browser: &Value) -> &str {
    browser["cdp_ws_url"].as_str().unwrap()
}

async fn delete(dev: &Dev, browser: &Value) {
    let deleted = dev.delete(&path(browser)).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
}

/// Returns the endpoint of a session of a host, as control has it.
fn endpoint(host: &Value, generation: u64) -> AgentEndpoint {
    let id: HostId = host["id"].as_str().unwrap().parse().unwrap();
    AgentEndpoint {
        address: host["address"].as_str().unwrap().parse().unwrap(),
        access: AgentAccess::Certificate(id),
        generation: Some(generation),
    }
}

/// Sends a command over DevTools.
async fn use_devtools(browser: &Value) {
    let (mut devtools, _) = connect_async(cdp_url(browser)).await.unwrap();
    let command = json!({"id": 1, "method": "Browser.getVersion"}).to_string();
    devtools.send(Message::text(command)).await.unwrap();
    let answer = in_time("an answer", devtools.next())
        .await
        .unwrap()
        .unwrap();
    assert!(answer.to_text().unwrap().contains("product"), "{answer}");
}

/// Starts the agent of a host again, and returns it and its host once that is ready.
async fn join_again(dev: &Dev, directory: TempDir) -> (TestAgent, Value) {
    let agent = joining(TestAgent::again(directory), dev, "an-unknown-join-token")
        .listening()
        .await;
    let host = ready(dev, &agent).await;
    (agent, host)
}

/// Requests the restart of an agent, and waits until control knows of it.
async fn request_restart(dev: &Dev, agent: &TestAgent, host: &Value) {
    agent.request_restart();
    host_when(dev, "a host to be restarted", |found| {
        found["id"] == host["id"] && found["restarting"] == true
    })
    .await;
}

/// Starts control whose hosts are not lost while their agents are started again.
async fn control_with_rare_heartbeats() -> Dev {
    let options = ["--fleet", "registered", "--agents", "0"];
    Dev::with(&[&options[..], &["--heartbeat-seconds", "60"]].concat()).await
}

#[tokio::test]
async fn agent_that_is_to_be_restarted_runs_its_browser_to_the_end() {
    let dev = control_with_rare_heartbeats().await;
    let (agent, host) = join(&dev, Start::on_screen()).await;
    // Without a browser it ends at once, and is the same host afterwards.
    agent.request_restart();
    let directory = agent.exits().await;
    assert_eq!(host_is(&dev, &host, "starting").await["restarting"], true);
    let (agent, again) = join_again(&dev, directory).await;
    let same = json!([host["id"], 1, false]);
    assert_eq!(
        json!([again["id"], again["generation"], again["restarting"]]),
        same
    );

    let created = dev.post("/browsers", json!({})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let browser = created.body;
    run(
        &dev,
        &browser,
        "await page.setContent('<title>kept</title>')",
    )
    .await;
    let replays = format!("{}/replays", path(&browser));
    let recording = dev.post(&replays, json!({})).await;
    assert_eq!(recording.status, StatusCode::CREATED, "{}", recording.body);
    request_restart(&dev, &agent, &host).await;
    assert_eq!(run(&dev, &browser, "return page.title()").await, "kept");
    delete(&dev, &browser).await;
    let directory = agent.exits().await;
    host_is(&dev, &host, "starting").await;
    let listed = dev.get(&replays).await;
    assert_eq!(listed.body[0]["status"], "finished", "{}", listed.body);

    let (agent, again) = join_again(&dev, directory).await;
    assert_eq!(
        json!([again["id"], again["generation"], again["restarting"]]),
        json!([host["id"], 2, false])
    );
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn idle_browser_of_a_pool_ends_for_the_restart_of_its_agent() {
    let dev = control_with_rare_heartbeats().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let pool = json!({"name": "all", "size": 1, "headless": true});
    let created = dev.post("/browser_pools", pool).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    host_is(&dev, &host, "leased").await;
    agent.request_restart();
    agent.exits().await;
    assert_eq!(host_is(&dev, &host, "starting").await["generation"], 2);
    dev.finish().await;
}

#[tokio::test]
async fn agent_without_a_host_ends_at_once_for_its_restart() {
    let dev = control_with_rare_heartbeats().await;
    let agent = joining(Start::without_browser(), &dev, "an-unknown-join-token");
    let agent = agent.listening().await;
    until("a refused registration", async || {
        let log = agent.log();
        log.contains("cannot register at control").then_some(())
    })
    .await;
    agent.request_restart();
    agent.exits().await;

    // Nor does a client reach the session of a host that was deleted.
    let token = join_token(&dev, json!({})).await;
    let agent = joining(Start::headless(), &dev, &token).listening().await;
    let host = ready(&dev, &agent).await;
    let deleted = dev
        .delete(&format!("/fleet/hosts/{}", host["id"].as_str().unwrap()))
        .await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    agent.request_restart();
    agent.exits().await;
    dev.finish().await;
}

/// Runs a script and returns its result.
async fn run(dev: &Dev, browser: &Value, code: &str) -> Value {
    let execute = format!("{}/automation/execute", path(browser));
    let answer = dev.post(&execute, json!({ "code": code })).await;
    assert_eq!(
        answer.body["success"],
        true,
        "{}\n{}",
        answer.body,
        dev.log()
    );
    answer.body["result"].clone()
}

/// Returns the value of a metric without labels.
async fn metric(dev: &Dev, name: &str) -> Option<f64> {
    let text = dev.request(Method::GET, "/metrics").send().await.unwrap();
    let text = text.text().await.unwrap();
    let line = text
        .lines()
        .find(|line| line.split_once(' ').is_some_and(|(found, _)| found == name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn next_browser_of_a_registered_host_finds_nothing_of_the_one_before() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let options = json!({"viewport": {"width": 800, "height": 600}, "start_url": "about:blank"});
    let first = dev.browser(options).await;
    let leased = host_is(&dev, &host, "leased").await;
    assert_eq!(leased["session_id"], first["session_id"]);
    let plant = "await page.route('http://site.test/', route => route.fulfill({body: 'x'}));
        await page.goto('http://site.test/');
        await page.evaluate(() => {
            localStorage.planted = 'yes'; document.cookie = 'planted=yes; max-age=9999';
        });
        return [await page.evaluate(() => screen.width), (await context.cookies()).length]";
    assert_eq!(run(&dev, &first, plant).await, json!([800, 1]));
    let (mut devtools, _) = connect_async(cdp_url(&first)).await.unwrap();
    delete(&dev, &first).await;
    let close = in_time("a Close frame", devtools.next()).await;
    let Some(Ok(Message::Close(Some(close)))) = close else {
        panic!("{close:?}");
    };
    assert_eq!(u16::from(close.code), 4004, "{close:?}");
    let recycled = host_is(&dev, &host, "ready").await;
    assert_eq!(recycled["generation"], 2);

    let second = dev.browser(json!({})).await;
    let leased = host_is(&dev, &host, "leased").await;
    assert_eq!(leased["session_id"], second["session_id"]);
    let found = "await page.route('http://site.test/', route => route.fulfill({body: 'x'}));
        await page.goto('http://site.test/');
        return [(await context.cookies()).length,
            await page.evaluate(() => localStorage.planted ?? null)]";
    assert_eq!(run(&dev, &second, found).await, json!([0, null]));
    use_devtools(&second).await;
    let width = run(
        &dev,
        &second,
        "return await page.evaluate(() => screen.width)",
    )
    .await;
    assert_eq!(width, 1920);

    // What was issued for the first browser reaches nothing of the second.
    let token = cdp_url(&first).split_once("jwt=").unwrap().1;
    let linked = format!("{}/json/list?jwt={token}", path(&first));
    let answer = Answer::of(dev.anonymous(Method::GET, &linked)).await;
    answer.assert_error(410, "session_ended");
    let other = format!("{}/json/list?jwt={token}", path(&second));
    let answer = Answer::of(dev.anonymous(Method::GET, &other)).await;
    answer.assert_error(401, "unauthorized");
    assert!(connect_async(cdp_url(&first)).await.is_err());
    // Even if control were wrong about the host, the agent would not be.
    let client = AgentClient::for_registered_hosts(control_tls(&dev));
    let stale = client.wait_ready(&endpoint(&host, 1), TIMEOUT).await;
    assert!(stale.unwrap_err().to_string().contains("410 Gone"));
    let current = client.wait_ready(&endpoint(&host, 2), TIMEOUT).await;
    current.unwrap();
    delete(&dev, &second).await;
    host_is(&dev, &host, "ready").await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn browser_without_a_ready_host_of_its_mode_is_503_and_counted() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let headless = async |options: Value| {
        let mut options = options;
        options["headless"] = true.into();
        dev.post("/browsers", options).await
    };
    let refused = [
        dev.post("/browsers", json!({})).await,
        headless(json!({"kiosk_mode": true})).await,
    ];
    for answer in &refused {
        answer.assert_error(503, "unavailable");
        assert_eq!(answer.header("retry-after"), "5");
    }
    assert_eq!(metric(&dev, "berth_hosts_wanted").await, Some(2.0));
    let first = dev.browser(json!({})).await;
    headless(json!({})).await.assert_error(503, "unavailable");
    assert_eq!(metric(&dev, "berth_hosts_wanted").await, Some(3.0));
    let listed = dev.get("/browsers?status=all").await.body;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    delete(&dev, &first).await;
    // Waits for the host that is being recycled.
    let second = dev.browser(json!({})).await;
    let leased = host_is(&dev, &host, "leased").await;
    assert_eq!(leased["session_id"], second["session_id"]);
    delete(&dev, &second).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn browser_ends_with_its_host() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let killed = dev.browser(json!({"name": "a"})).await;
    let (mut devtools, _) = connect_async(cdp_url(&killed)).await.unwrap();
    let directory = agent.kill().await;
    let _ = in_time("the end of the stream", devtools.next()).await;
    host_is(&dev, &host, "lost").await;
    browser_ends(&dev, &killed).await;
    let ended = dev.get(&format!("{}?status=all", path(&killed))).await;
    assert!(ended.body["deleted_at"].is_string(), "{}", ended.body);

    // The agent continues with the session, which it has to end before the host gets another.
    let start = TestAgent::again(directory).with(["--headless"]);
    let token = join_token(&dev, json!({})).await;
    let agent = joining(start, &dev, &token).listening().await;
    let host = ready(&dev, &agent).await;
    assert_eq!(host["generation"], 2);
    // The name of the ended browser is free.
    let deleted = dev.browser(json!({"name": "a"})).await;
    let host_path = format!("/fleet/hosts/{}", host["id"].as_str().unwrap());
    assert_eq!(dev.delete(&host_path).await.status, StatusCode::NO_CONTENT);
    browser_ends(&dev, &deleted).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn host_is_retired_after_a_program() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let browser = dev.browser(json!({})).await;
    let exec = format!("{}/process/exec", path(&browser));
    // Without root, every program runs as the agent's user.
    let as_root = nix::unistd::geteuid().is_root();
    let program = json!({"command": "true", "as_root": as_root});
    let done = dev.post(&exec, program).await;
    assert_eq!(done.status, StatusCode::OK, "{}", done.body);
    delete(&dev, &browser).await;
    host_is(&dev, &host, "retiring").await;
    let refused = dev.post("/browsers", json!({"headless": true})).await;
    refused.assert_error(503, "unavailable");
    agent.stop().await;
    // It is gone when it does not report any more.
    until("no host", async || {
        let hosts = dev.get("/fleet/hosts").await.body;
        (hosts == json!([])).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn dev_starts_agents_that_join_by_token_and_run_browsers() {
    let dev = Dev::with(&["--fleet", "registered"]).await;
    dev.hosts_are("ready", 2).await;
    let first = dev.post("/browsers", json!({})).await.body;
    let second = dev.post("/browsers", json!({})).await.body;
    for browser in [&first, &second] {
        assert_eq!(run(&dev, browser, "return 1").await, 1);
    }
    dev.hosts_are("leased", 2).await;
    delete(&dev, &first).await;
    dev.hosts_are("ready", 1).await;
    let state = dev.finish().await;
    // The agents have their identity, and the browser goes on.
    let dev = Dev::start_in(state, &["--fleet", "registered"]).await;
    dev.hosts_are("leased", 1).await;
    until("the browser", async || {
        let version = format!("{}/json/version", path(&second));
        (dev.get(&version).await.status == StatusCode::OK).then_some(())
    })
    .await;
    assert_eq!(
        dev.get("/fleet/hosts").await.body.as_array().unwrap().len(),
        2
    );
    delete(&dev, &second).await;
    dev.hosts_are("ready", 2).await;
    dev.finish().await;
}

#[tokio::test]
async fn browser_survives_a_crash_and_a_restart_of_control() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let browser = dev
        .browser(json!({"name": "kept", "timeout_seconds": 20}))
        .await;
    run(
        &dev,
        &browser,
        "await page.evaluate(() => { window.kept = 'yes' })",
    )
    .await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);

    let dev = fleet_control_again(state, &url).await;
    let found = dev.get("/browsers/kept").await;
    assert_eq!(
        found.body["session_id"], browser["session_id"],
        "{}",
        found.body
    );
    let kept = "return await page.evaluate(() => window.kept)";
    assert_eq!(run(&dev, &browser, kept).await, "yes");
    // The token that the first process has issued.
    use_devtools(&browser).await;
    assert_eq!(host_is(&dev, &host, "leased").await["generation"], 1);
    let state = dev.finish().await;

    let dev = fleet_control_again(state, &url).await;
    assert_eq!(run(&dev, &browser, kept).await, "yes");
    // The idle time goes on.
    browser_ends(&dev, &browser).await;
    assert_eq!(host_is(&dev, &host, "ready").await["generation"], 2);
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn browser_that_was_idle_for_too_long_while_control_did_not_run_ends_at_its_start() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let browser = dev.browser(json!({"timeout_seconds": 259_200})).await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    let dev = fleet_control_again(state, &url).await;
    dev.get(&path(&browser)).await;
    let id = browser["session_id"].as_str().unwrap();
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    state
        .sql(&format!(
            "UPDATE browsers SET used_at = 0 WHERE id = '{id}'"
        ))
        .await;
    let dev = fleet_control_again(state, &url).await;
    browser_ends(&dev, &browser).await;
    host_is(&dev, &host, "ready").await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn release_that_a_crash_has_interrupted_is_finished_by_the_next_process() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let browser = dev.browser(json!({})).await;
    // The agent does not respond to the end of the session.
    processes::signal(agent.pid(), Signal::SIGSTOP);
    let deleting = dev.request(Method::DELETE, &path(&browser)).send();
    let deleting = tokio::spawn(deleting);
    host_is(&dev, &host, "recycling").await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    assert!(in_time("the end", deleting).await.unwrap().is_err());
    processes::signal(agent.pid(), Signal::SIGCONT);

    let dev = fleet_control_again(state, &url).await;
    dev.get(&path(&browser))
        .await
        .assert_error(404, "not_found");
    assert_eq!(host_is(&dev, &host, "ready").await["generation"], 2);
    let next = dev.browser(json!({})).await;
    assert_ne!(next["session_id"], browser["session_id"]);
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn requests_end_with_their_browser_also_if_its_host_does_not_respond() {
    let dev = fleet_control().await;
    let (agent, _) = join(&dev, Start::headless()).await;
    let browser = dev.browser(json!({})).await;
    let directory = tempfile::tempdir().unwrap();
    let token = cdp_url(&browser).split_once("jwt=").unwrap().1;
    let exec = format!("{}/process/exec", path(&browser));
    let linked = format!("{exec}?jwt={token}");
    let requests = [
        dev.request(Method::POST, &exec),
        dev.anonymous(Method::POST, &linked),
    ];
    let mut answers = Vec::new();
    for (number, request) in requests.into_iter().enumerate() {
        let started = directory.path().join(number.to_string());
        let line = format!("touch {}; sleep 600", started.display());
        let request = request.json(&json!({"command": "sh", "args": ["-c", line]}));
        answers.push(tokio::spawn(Answer::of(request)));
        until("the program", async || started.exists().then_some(())).await;
    }
    let logs = format!(
        "{}/logs/stream?source=supervisor&supervisor_process=agent",
        path(&browser)
    );
    let mut stream = dev.request(Method::GET, &logs).send().await.unwrap();
    processes::signal(agent.pid(), Signal::SIGSTOP);
    let deleting = dev.request(Method::DELETE, &path(&browser)).send();
    let deleting = tokio::spawn(deleting);
    for (answer, (status, code)) in answers
        .into_iter()
        .zip([(404, "not_found"), (410, "session_ended")])
    {
        let answer = in_time("an answer", answer).await.unwrap();
        answer.assert_error(status, code);
    }
    let end = async { while let Ok(Some(_)) = stream.chunk().await {} };
    in_time("the end of the stream", end).await;
    assert!(!deleting.is_finished());
    processes::signal(agent.pid(), Signal::SIGCONT);
    let deleted = in_time("the end", deleting).await.unwrap().unwrap();
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn creation_that_a_crash_has_interrupted_leaves_nothing() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    processes::signal(agent.pid(), Signal::SIGSTOP);
    let request = dev.request(Method::POST, "/browsers");
    let creating = tokio::spawn(request.json(&json!({"headless": true, "name": "a"})).send());
    host_is(&dev, &host, "leased").await;
    let (url, state) = (dev.base_url.clone(), dev.crash().await);
    assert!(in_time("the end", creating).await.unwrap().is_err());
    processes::signal(agent.pid(), Signal::SIGCONT);

    let dev = fleet_control_again(state, &url).await;
    assert_eq!(host_is(&dev, &host, "ready").await["generation"], 2);
    assert_eq!(dev.get("/browsers?status=all").await.body, json!([]));
    dev.browser(json!({"name": "a"})).await;
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn drained_host_runs_its_browser_to_the_end_and_is_retired() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::headless()).await;
    let browser = dev.browser(json!({})).await;
    let drain = format!("/fleet/hosts/{}/drain", host["id"].as_str().unwrap());
    assert_eq!(dev.post(&drain, json!({})).await.status, StatusCode::OK);
    let draining = host_is(&dev, &host, "leased").await;
    assert_eq!(draining["draining"], true);
    assert_eq!(run(&dev, &browser, "return 1").await, 1);
    delete(&dev, &browser).await;
    host_is(&dev, &host, "retiring").await;
    // Its session has ended at the agent, too.
    let client = AgentClient::for_registered_hosts(control_tls(&dev));
    let stale = client.wait_ready(&endpoint(&host, 1), TIMEOUT).await;
    assert!(stale.unwrap_err().to_string().contains("410 Gone"));
    let refused = dev.post("/browsers", json!({"headless": true})).await;
    refused.assert_error(503, "unavailable");
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn recordings_that_were_not_fetched_during_a_session_are_fetched_after_it() {
    let dev = fleet_control().await;
    let (agent, host) = join(&dev, Start::on_screen()).await;
    let browser = dev.post("/browsers", json!({})).await.body;
    let replays = format!("{}/replays", path(&browser));
    let started = dev.post(&replays, json!({})).await;
    assert_eq!(started.status, StatusCode::CREATED, "{}", started.body);
    let state = {
        let url = dev.base_url.clone();
        let state = dev.crash().await;
        let id = browser["session_id"].as_str().unwrap();
        // As if the first process had ended the browser, but not fetched its recording.
        state
            .sql(&format!(
                "UPDATE browsers SET state = 'deleting', end_reason = 'deleted', \
                 live_name = NULL, deleted_at = created_at WHERE id = '{id}'"
            ))
            .await;
        (url, state)
    };
    let dev = fleet_control_again(state.1, &state.0).await;
    assert_eq!(host_is(&dev, &host, "ready").await["generation"], 2);
    let listed = dev.get(&replays).await;
    assert_eq!(listed.body[0]["status"], "finished", "{}", listed.body);
    let replay = format!(
        "{replays}/{}",
        listed.body[0]["replay_id"].as_str().unwrap()
    );
    let video = dev.request(Method::GET, &replay).send().await.unwrap();
    assert_eq!(video.status(), StatusCode::OK);
    agent.stop().await;
    dev.finish().await;
}
