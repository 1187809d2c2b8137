//! Many DevTools clients of one browser, which attach and detach at random while tabs open, close,
//! crash and hang.

mod client;
mod connection;
mod tabs;

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::Value;
use tokio::sync::Barrier;

use self::{client::RandomClient, connection::Counts, tabs::Tabs};
use crate::support::{
    agent::{Start, TestAgent},
    processes::anonymous_kib,
    random::setting,
    scripts::metric,
    wait::until,
};

const CLIENTS: usize = 64;
/// The number of connections of each client, unless the variable sets it.
const CONNECTIONS: usize = 3;
const CONNECTIONS_VARIABLE: &str = "BERTH_TEST_CDP_CONNECTIONS";
/// The default seed of the generator.
const SEED: u64 = 4;
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";
/// The memory that the agent may hold after the second run beyond that after the first.
const MAX_GROWTH_KIB: u64 = 10 << 10;

/// Returns the ids of the open tabs.
async fn tabs_of(agent: &TestAgent) -> BTreeSet<String> {
    let list = agent.ok(agent.get("/json/list")).await;
    let targets = list.as_array().expect("a list").iter();
    let pages = targets.filter(|target| target["type"] == "page");
    let ids = pages.filter_map(|page| page["id"].as_str());
    ids.map(str::to_owned).collect()
}

async fn wait_for_clients(agent: &TestAgent, count: usize) {
    until("the number of clients", async || {
        (metric(agent, "berth_cdp_clients").await == count as f64).then_some(())
    })
    .await;
}

/// Runs all clients to their end. Returns the agent's memory after it.
async fn run(agent: &TestAgent, seed: u64, connections: usize) -> (Counts, u64) {
    let before = tabs_of(agent).await;
    let first = before.first().expect("a tab");
    let tabs = Tabs::new(first);
    let all_connected = Barrier::new(CLIENTS + 1);
    let clients = (0..CLIENTS).map(|number| {
        let client = RandomClient::new(agent, &tabs, seed, number);
        client.run(connections, &all_connected)
    });
    let counting = async {
        all_connected.wait().await;
        wait_for_clients(agent, CLIENTS).await;
        all_connected.wait().await;
    };
    let (counts, ()) = tokio::join!(join_all(clients), counting);
    let mut sum = Counts::default();
    counts.into_iter().for_each(|counts| sum += counts);
    wait_for_clients(agent, 0).await;
    until("the closing of the other tabs", async || {
        (tabs_of(agent).await == before).then_some(())
    })
    .await;
    let memory = anonymous_kib(agent.pid());
    println!("{sum:?}, agent: {memory} KiB");
    (sum, memory)
}

#[tokio::test]
async fn clients_receive_only_their_own_messages_while_tabs_crash_and_hang() {
    let seed = setting(SEED_VARIABLE, SEED);
    let connections = setting(CONNECTIONS_VARIABLE, CONNECTIONS);
    println!("{SEED_VARIABLE}={seed} {CONNECTIONS_VARIABLE}={connections}");
    let agent = Start::headless()
        .with(["--max-cdp-clients", "256"])
        .logging("info")
        .ready()
        .await;
    let (counts, after_first) = run(&agent, seed, connections).await;
    // Each kind of step occurred.
    for (name, count) in [
        ("answers", counts.answers),
        ("events", counts.events),
        ("detached sessions", counts.detached),
        ("late calls", counts.late_calls),
        ("crashes", counts.crashes),
        ("hangs", counts.hangs),
        ("abandoned calls", counts.abandoned_calls),
    ] {
        assert!(count > 0, "no {name}: {counts:?}");
    }
    run(&agent, seed + 1, connections).await;
    until("the memory to be returned", async || {
        (anonymous_kib(agent.pid()) <= after_first + MAX_GROWTH_KIB).then_some(())
    })
    .await;
    let status: Value = agent.ok(agent.get("/chromium")).await;
    assert_eq!(status["generation"], 1, "{status}");
    agent.stop().await;
}
