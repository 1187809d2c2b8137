//! Many clients that wait for few browsers of a pool. The hosts are simulated.

use std::{
    collections::{HashMap, HashSet},
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use sea_orm::QueryResult;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{
    dev::{Answer, Dev},
    processes,
    simulated_agent::SimulatedAgent,
    wait::until,
};

/// The options of control. Simulated hosts report once, which suffices for the longest run.
pub(super) const OPTIONS: [&str; 6] = [
    "--fleet",
    "registered",
    "--agents",
    "0",
    "--heartbeat-seconds",
    "300",
];
/// The number of browsers.
const BROWSERS: usize = 2;
const POOL: &str = "/browser_pools/n";

/// Returns the number of clients: `BERTH_TEST_POOL_WAITERS`, or 60.
fn clients() -> usize {
    let count = env::var("BERTH_TEST_POOL_WAITERS");
    count.map_or(60, |count| count.parse().unwrap())
}

async fn acquire(dev: &Dev, seconds: u64) -> Answer {
    let request = dev.request(Method::POST, &format!("{POOL}/acquire"));
    let body = json!({"acquire_timeout_seconds": seconds});
    Answer::of(request.json(&body).timeout(Duration::from_secs(400))).await
}

async fn release(dev: &Dev, browser: &Value) {
    let request = json!({"session_id": browser["session_id"]});
    let released = dev.post(&format!("{POOL}/release"), request).await;
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.body);
}

async fn waiting_is(dev: &Dev, count: usize) {
    until("the number of waiting clients", async || {
        let pool = dev.get(POOL).await.body;
        (pool["waiting_count"] == count).then_some(())
    })
    .await;
}

/// A client that waits, uses the browser for no time, and releases it.
fn wait_and_release(
    dev: &Arc<Dev>,
    index: usize,
    served: &Arc<Mutex<Vec<(usize, String)>>>,
) -> JoinHandle<()> {
    let (dev, served) = (dev.clone(), served.clone());
    tokio::spawn(async move {
        let answer = acquire(&dev, 300).await;
        assert_eq!(answer.status, StatusCode::OK, "{index}: {}", answer.body);
        let session = answer.body["session_id"].as_str().unwrap().to_owned();
        served.lock().push((index, session));
        release(&dev, &answer.body).await;
    })
}

/// Has clients of all processes wait, some of which leave and some of which have little time.
pub(super) async fn clients_are_served_in_order(devs: &[Arc<Dev>]) {
    let dev = &devs[0];
    let mut hosts = Vec::new();
    for _ in 0..BROWSERS {
        hosts.push(SimulatedAgent::join(dev).await);
    }
    let settings = json!({"name": "n", "size": BROWSERS, "fill_rate_per_minute": 10_000});
    let created = dev.post("/browser_pools", settings).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let mut held = Vec::new();
    for _ in 0..BROWSERS {
        let answer = acquire(dev, 60).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        held.push(answer.body);
    }
    let memory = || {
        let of_each = devs
            .iter()
            .map(|dev| processes::resident_kib(dev.pid().as_raw() as u32));
        of_each.sum::<u64>()
    };
    let before = memory();

    // In the order of their indexes, at one process after the other.
    let count = clients();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for index in 0..count {
        let dev = &devs[index % devs.len()];
        waiting.push((index, wait_and_release(dev, index, &served)));
        waiting_is(dev, index + 1).await;
    }
    let while_waiting = memory();
    let late = expire(devs, count / 5).await;
    let (leaving, staying): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|(index, _)| index % 5 == 2);
    for (_, client) in &leaving {
        client.abort();
    }
    waiting_is(dev, staying.len()).await;

    let start = Instant::now();
    for browser in &held {
        release(dev, browser).await;
    }
    let expected: Vec<usize> = staying.iter().map(|(index, _)| *index).collect();
    for client in join_all(staying.into_iter().map(|(_, client)| client)).await {
        client.unwrap();
    }
    let elapsed = start.elapsed();
    let served = std::mem::take(&mut *served.lock());
    check(dev, &expected, &served, leaving.len()).await;
    println!(
        "{count} clients, {} processes: {} served in {elapsed:?}, {} left, the latest of {} expired \
         {late:?} late; memory {before} KiB before, {while_waiting} KiB while all waited, {} KiB after",
        devs.len(),
        expected.len(),
        leaving.len(),
        count / 5,
        memory(),
    );
}

/// Has clients wait for a second, behind all others. Returns by how much the latest one was late.
async fn expire(devs: &[Arc<Dev>], count: usize) -> Duration {
    let limit = Duration::from_secs(1);
    let waiting = (0..count).map(async |index| {
        let start = Instant::now();
        let answer = acquire(&devs[index % devs.len()], limit.as_secs()).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.body);
        start.elapsed() - limit
    });
    join_all(waiting).await.into_iter().max().unwrap()
}

/// Checks that exactly the clients that stayed were served, each once, in their order.
async fn check(dev: &Dev, expected: &[usize], served: &[(usize, String)], left: usize) {
    let sessions: HashSet<&String> = served.iter().map(|(_, session)| session).collect();
    assert_eq!(sessions.len(), expected.len(), "{left} have left");
    // Clients that are served at the same time may finish in any order.
    for (position, (index, _)) in served.iter().enumerate() {
        let place = expected.iter().position(|other| other == index).unwrap();
        assert!(place.abs_diff(position) <= BROWSERS, "{served:?}");
    }
    let rows = dev.rows("SELECT count(*) FROM browsers").await;
    let created: i64 = rows[0].try_get_by_index(0).unwrap();
    assert_eq!(created as usize, expected.len() + BROWSERS);
    until("all browsers to be available again", async || {
        let pool = dev.get(POOL).await.body;
        let counts = (
            &pool["available_count"],
            &pool["acquired_count"],
            &pool["waiting_count"],
        );
        (counts == (&BROWSERS.into(), &0.into(), &0.into())).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clients_of_one_process_are_served_in_order() {
    let dev = Arc::new(Dev::with(&OPTIONS).await);
    clients_are_served_in_order(std::slice::from_ref(&dev)).await;
    Arc::into_inner(dev).unwrap().finish().await;
}

#[tokio::test]
async fn waiting_client_of_a_deleted_pool_is_refused_at_once() {
    let dev = Arc::new(Dev::with(&OPTIONS).await);
    let settings = json!({"name": "n", "size": 1});
    dev.post("/browser_pools", settings).await;
    let waiting = {
        let dev = dev.clone();
        tokio::spawn(async move { acquire(&dev, 300).await })
    };
    waiting_is(&dev, 1).await;
    dev.delete(POOL).await;
    waiting.await.unwrap().assert_error(404, "not_found");
    Arc::into_inner(dev).unwrap().finish().await;
}

async fn available_is(dev: &Dev, count: usize) {
    until("the number of available browsers", async || {
        let pool = dev.get(POOL).await.body;
        (pool["available_count"] == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn client_of_an_unresponsive_browser_is_answered_in_time() {
    let dev = Dev::with(&OPTIONS).await;
    let agent = SimulatedAgent::join(&dev).await;
    let settings = json!({"name": "n", "size": 1, "fill_rate_per_minute": 10_000});
    dev.post("/browser_pools", settings).await;
    available_is(&dev, 1).await;
    agent.set_responsive(false);
    // The same name: the first request has left nothing.
    for limit in [1, 1, 0] {
        let body = json!({"acquire_timeout_seconds": limit, "name": "x"});
        let limit = Duration::from_secs(limit);
        let start = Instant::now();
        let answer = dev.post(&format!("{POOL}/acquire"), body).await;
        let late = start.elapsed() - limit;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.body);
        // The check takes five seconds. The bound is 100 ms on a machine that does nothing else.
        assert!(late < Duration::from_millis(1500), "{late:?}");
        println!("answered {late:?} after the deadline");
        assert_eq!(dev.get(POOL).await.body["available_count"], 1);
    }
    // It is found to be unusable meanwhile, and replaced.
    until("the end of the browser", async || {
        let rows = dev.rows("SELECT generation FROM hosts").await;
        let generation: i64 = rows[0].try_get_by_index(0).unwrap();
        let pool = dev.get(POOL).await.body;
        (generation > 1 || pool["available_count"] == 0).then_some(())
    })
    .await;
    agent.set_responsive(true);
    available_is(&dev, 1).await;
    let answer = acquire(&dev, 30).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    dev.finish().await;
}

#[tokio::test]
async fn host_that_is_not_to_be_used_again_is_recorded_before_the_answer() {
    let dev = Dev::with(&OPTIONS).await;
    let _agent = SimulatedAgent::join(&dev).await;
    let settings = json!({"name": "n", "size": 1, "fill_rate_per_minute": 10_000});
    dev.post("/browser_pools", settings).await;
    let leased = acquire(&dev, 60).await;
    // Even if nothing after it can be recorded.
    dev.refuse("deleting").await;
    let request = json!({"session_id": leased.body["session_id"], "reuse": false});
    let failed = dev.post(&format!("{POOL}/release"), request.clone()).await;
    assert!(failed.status.is_server_error(), "{}", failed.body);
    let rows = dev.rows("SELECT draining FROM hosts").await;
    assert!(rows[0].try_get_by_index::<bool>(0).unwrap());
    dev.allow().await;
    let released = dev.post(&format!("{POOL}/release"), request).await;
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.body);
    let state = dev.kill().await;
    let dev = Dev::start_in(state, &OPTIONS).await;
    until("the end of the host", async || {
        let rows = dev.rows("SELECT state FROM hosts").await;
        let state: String = rows[0].try_get_by_index(0).unwrap();
        ["retiring", "gone"].contains(&state.as_str()).then_some(())
    })
    .await;
    dev.finish().await;
}

/// A browser is either acquired before the flush, or was started after it.
#[tokio::test]
async fn no_browser_of_before_a_flush_is_acquired_after_it() {
    const SIZE: usize = 4;
    const FLUSHES: usize = 5;
    let dev = Arc::new(Dev::with(&OPTIONS).await);
    let mut agents = Vec::new();
    for _ in 0..SIZE {
        agents.push(SimulatedAgent::join(&dev).await);
    }
    let settings = json!({"name": "n", "size": SIZE, "fill_rate_per_minute": 10_000});
    dev.post("/browser_pools", settings).await;
    available_is(&dev, SIZE).await;
    for _ in 0..FLUSHES {
        let before = generations(&dev).await;
        let acquiring = (0..SIZE).map(|_| {
            let dev = dev.clone();
            tokio::spawn(async move { acquire(&dev, 60).await.body })
        });
        let acquiring: Vec<_> = acquiring.collect();
        let flushed = dev.post(&format!("{POOL}/flush"), json!({})).await;
        assert_eq!(flushed.status, StatusCode::NO_CONTENT, "{}", flushed.body);
        let by_then = acquired(&dev).await;
        for browser in join_all(acquiring).await {
            let browser = browser.unwrap();
            let session = browser["session_id"].as_str().unwrap();
            let (host, generation) = host_of(&dev, session).await;
            assert!(
                by_then.contains(session) || generation > before[&host],
                "{session} of {host}: {generation}"
            );
            release(&dev, &browser).await;
        }
        available_is(&dev, SIZE).await;
    }
    Arc::into_inner(dev).unwrap().finish().await;
}

/// Returns the number of sessions that each host has had.
async fn generations(dev: &Dev) -> HashMap<String, i64> {
    let rows = dev.rows("SELECT id, generation FROM hosts").await;
    let of_row = |row: &QueryResult| {
        let (id, generation) = (row.try_get_by_index(0), row.try_get_by_index(1));
        (id.unwrap(), generation.unwrap())
    };
    rows.iter().map(of_row).collect()
}

/// Returns the sessions that clients have acquired, or are acquiring.
async fn acquired(dev: &Dev) -> HashSet<String> {
    let rows = dev.rows("SELECT id FROM browsers").await;
    let ids = rows.iter().map(|row| row.try_get_by_index(0).unwrap());
    ids.collect()
}

async fn host_of(dev: &Dev, session: &str) -> (String, i64) {
    let query = format!("SELECT id, generation FROM hosts WHERE session_id = '{session}'");
    let rows = dev.rows(&query).await;
    let (id, generation) = (rows[0].try_get_by_index(0), rows[0].try_get_by_index(1));
    (id.unwrap(), generation.unwrap())
}
