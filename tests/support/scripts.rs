//! Runs scripts through an agent.

use std::time::SystemTime;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{
    agent::TestAgent,
    processes,
    wait::{in_time, until},
};

/// Runs a script, asserts status 200, and returns the response.
pub async fn execute(agent: &TestAgent, body: Value) -> Value {
    let request = agent.post("/automation/execute").json(&body);
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// Runs a script, asserts success, and returns its result.
pub async fn result_of(agent: &TestAgent, code: &str) -> Value {
    let answer = execute(agent, json!({ "code": code })).await;
    assert_eq!(answer["success"], true, "{answer}\n{code}");
    answer["result"].clone()
}

/// Runs a script that must fail, and returns the error.
pub async fn error_of(agent: &TestAgent, code: &str, timeout_sec: u64) -> String {
    let body = json!({ "code": code, "timeout_sec": timeout_sec });
    let answer = execute(agent, body).await;
    assert_eq!(answer["success"], false, "{answer}\n{code}");
    assert_eq!(answer["result"], Value::Null);
    answer["error"].as_str().expect("a reason").to_owned()
}

/// Starts a script and waits until it runs, which it shows by a tab with the title `running`.
pub async fn start(agent: &TestAgent, rest: &str, body: Value) -> tokio::task::JoinHandle<Value> {
    start_titled(agent, "running", rest, body).await
}

pub async fn start_titled(
    agent: &TestAgent,
    title: &str,
    rest: &str,
    mut body: Value,
) -> tokio::task::JoinHandle<Value> {
    body["code"] = format!(
        "const own = await context.newPage(); await own.goto('data:text/html,<title>{title}</title>'); {rest}"
    )
    .into();
    let request = agent.post("/automation/execute").json(&body).send();
    let running = tokio::spawn(async move {
        let response = in_time("an answer", request).await.expect("an answer");
        response.json().await.expect("JSON")
    });
    until(title, async || {
        titles(agent)
            .await
            .contains(&title.to_owned())
            .then_some(())
    })
    .await;
    running
}

pub async fn titles(agent: &TestAgent) -> Vec<String> {
    let tabs = agent.ok(agent.get("/json/list")).await;
    let tabs = tabs.as_array().expect("a list");
    tabs.iter()
        .filter(|tab| tab["type"] == "page")
        .map(|tab| tab["title"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Returns the process ids of the agent's script workers.
pub fn workers(agent: &TestAgent) -> Vec<u32> {
    processes::naming(&agent.state_dir())
        .into_iter()
        .filter(|process| processes::status_field(process.pid, "Name") == "berth-worker")
        .map(|process| process.pid)
        .collect()
}

/// Counts of what scripts could leave behind.
#[derive(Debug, PartialEq)]
pub struct ResourceCounts {
    pub workers: usize,
    /// The scratch directories that workers have changed.
    pub scratch: usize,
    pub tabs: usize,
    pub descriptors: usize,
}

/// The unattached workers that are ready, per warm one.
const UNATTACHED_PER_WARM_WORKER: usize = 4;

/// The most unused scratch directories that are kept without a worker.
const MAX_KEPT_SCRATCH: usize = 16;

/// Returns for each scratch directory whether something was created or removed in it.
fn scratch_directories(agent: &TestAgent) -> Vec<bool> {
    let all = std::fs::read_dir(agent.session_dir().join("scratch")).expect("a directory");
    // One may be removed meanwhile.
    all.filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok())
        .map(|modified| modified != SystemTime::UNIX_EPOCH)
        .collect()
}

/// Waits until the agent is idle with this many warm workers, and the unattached ones that belong
/// to them; returns the counts.
pub async fn idle_counts(agent: &TestAgent, warm_count: usize) -> ResourceCounts {
    let ready = warm_count * (1 + UNATTACHED_PER_WARM_WORKER);
    let mut last = None;
    until("the pool at rest", async || {
        let scratch = scratch_directories(agent);
        let counts = ResourceCounts {
            workers: workers(agent).len(),
            scratch: scratch.iter().filter(|is_changed| **is_changed).count(),
            tabs: titles(agent).await.len(),
            descriptors: descriptors(agent),
        };
        let warm = metric(agent, "berth_automation_warm_workers").await;
        let is_idle = counts.workers == ready
            // Attached workers create a directory for downloads.
            && counts.scratch == warm_count
            && (ready..=ready + MAX_KEPT_SCRATCH).contains(&scratch.len())
            && warm == warm_count as f64
            && last.as_ref() == Some(&counts);
        if is_idle {
            return Some(counts);
        }
        last = Some(counts);
        None
    })
    .await
}

pub async fn metric(agent: &TestAgent, name: &str) -> f64 {
    let text = in_time("metrics", agent.get("/metrics").send())
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(found, _)| *found == name || found.starts_with(&format!("{name}{{")))
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum()
}

/// Returns the number of the agent's open descriptors without its connections to clients.
fn descriptors(agent: &TestAgent) -> usize {
    let all = entries(format!("/proc/{}/fd", agent.pid()).as_ref());
    let port: u16 = agent
        .base_url
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .expect("a port");
    let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", agent.pid()))
        .expect("the socket table");
    let established = format!(":{port:04X} ");
    let clients = sockets
        .lines()
        .filter(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().unwrap_or_default();
            format!("{local} ").ends_with(&established) && columns.nth(1) == Some("01")
        })
        .count();
    all.saturating_sub(clients)
}

fn entries(directory: &std::path::Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}
