//! Pools with real browsers.

use std::collections::HashSet;

use nix::sys::signal::{Signal, kill};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    dev::{Answer, Dev, State},
    fleet_agent::{FLEET, fleet_control, host_is, join},
    profiles::{found, log_in, logged_in, login_of, profile, saved},
    s3::S3Server,
    wait::until,
};

/// Creates a pool of headless browsers, which are started as fast as possible.
async fn pool(dev: &Dev, mut settings: Value) -> Value {
    settings["headless"] = true.into();
    settings["name"] = "n".into();
    settings["fill_rate_per_minute"] = 10_000.into();
    let created = dev.post("/browser_pools", settings).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    created.body
}

async fn acquire(dev: &Dev) -> Value {
    acquire_with(dev, json!({})).await
}

async fn acquire_with(dev: &Dev, mut lease: Value) -> Value {
    lease["acquire_timeout_seconds"] = 60.into();
    let leased = dev.post("/browser_pools/n/acquire", lease).await;
    assert_eq!(
        leased.status,
        StatusCode::OK,
        "{}\n{}",
        leased.body,
        dev.log()
    );
    leased.body
}

async fn release(dev: &Dev, browser: &Value, reuse: bool) {
    let request = json!({"session_id": browser["session_id"], "reuse": reuse});
    let released = dev.post("/browser_pools/n/release", request).await;
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{}", released.body);
}

/// Waits until the pool has so many available and acquired browsers.
async fn counts_are(dev: &Dev, available: u64, acquired: u64) {
    until("the counts of the pool", async || {
        let pool = dev.get("/browser_pools/n").await.body;
        let counts = (&pool["available_count"], &pool["acquired_count"]);
        (counts == (&available.into(), &acquired.into())).then_some(())
    })
    .await;
}

async fn run(dev: &Dev, browser: &Value, code: &str) -> Value {
    let path = format!(
        "/browsers/{}/automation/execute",
        browser["session_id"].as_str().unwrap()
    );
    let answer = dev.post(&path, json!({ "code": code })).await;
    assert_eq!(answer.body["success"], true, "{}", answer.body);
    answer.body["result"].clone()
}

const SITE: &str = "await page.route('http://site.test/', route => route.fulfill({body: 'x'}));
    await page.goto('http://site.test/');";

async fn plant(dev: &Dev, browser: &Value) {
    let code = "await page.evaluate(() => {
            localStorage.planted = 'yes'; document.cookie = 'planted=yes; max-age=9999';
        });
        return (await context.cookies()).length";
    assert_eq!(run(dev, browser, &format!("{SITE}{code}")).await, 1);
}

async fn finds_nothing(dev: &Dev, browser: &Value) {
    let code = "return [(await context.cookies()).length, context.pages().length,
        await page.evaluate(() => localStorage.planted ?? null)]";
    let found = run(dev, browser, &format!("{SITE}{code}")).await;
    assert_eq!(found, json!([0, 1, null]));
}

/// Returns the hosts of the pool.
async fn hosts(dev: &Dev) -> HashSet<String> {
    let query = "SELECT id FROM hosts WHERE pool_id IS NOT NULL AND state <> 'gone'";
    let rows = dev.rows(query).await;
    rows.iter()
        .map(|row| row.try_get_by_index(0).unwrap())
        .collect()
}

#[tokio::test]
async fn next_lease_finds_nothing_of_the_one_before() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 1})).await;
    let first = acquire(&dev).await;
    plant(&dev, &first).await;
    let used = hosts(&dev).await;
    release(&dev, &first, true).await;
    let path = format!("/browsers/{}", first["session_id"].as_str().unwrap());
    dev.get(&path).await.assert_error(404, "not_found");
    let url = first["cdp_ws_url"].as_str().unwrap();
    let token = url.split_once("jwt=").unwrap().1;
    let execute = format!("{path}/automation/execute?jwt={token}");
    let request = dev.anonymous(Method::POST, &execute);
    let gone = Answer::of(request.json(&json!({"code": "return 1"}))).await;
    gone.assert_error(410, "session_ended");

    let second = acquire(&dev).await;
    assert_ne!(second["session_id"], first["session_id"]);
    finds_nothing(&dev, &second).await;
    assert_eq!(hosts(&dev).await, used);
    // A host that is not to be used again is replaced.
    release(&dev, &second, false).await;
    let third = acquire(&dev).await;
    finds_nothing(&dev, &third).await;
    assert!(hosts(&dev).await.is_disjoint(&used));
    counts_are(&dev, 0, 1).await;
    dev.finish().await;
}

#[tokio::test]
async fn flush_and_changes_replace_idle_browsers_and_leave_leased_ones() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 2})).await;
    counts_are(&dev, 2, 0).await;
    let leased = acquire(&dev).await;
    counts_are(&dev, 1, 1).await;
    let idle = async || {
        let rows = dev
            .rows("SELECT id FROM pool_browsers WHERE state = 'idle'")
            .await;
        let ids = rows.iter().map(|row| row.try_get_by_index(0).unwrap());
        ids.collect::<Vec<String>>()
    };
    let before = idle().await;
    let flushed = dev.post("/browser_pools/n/flush", json!({})).await;
    assert_eq!(flushed.status, StatusCode::NO_CONTENT);
    assert!(!idle().await.contains(&before[0]));
    counts_are(&dev, 1, 1).await;
    assert_eq!(run(&dev, &leased, "return 7").await, 7);

    let before = idle().await;
    let change = json!({"discard_all_idle": true});
    dev.patch("/browser_pools/n", change).await;
    assert!(!idle().await.contains(&before[0]));
    counts_are(&dev, 1, 1).await;

    let change = json!({"viewport": {"width": 800, "height": 600}, "timeout_seconds": 60});
    let changed = dev.patch("/browser_pools/n", change).await;
    assert_eq!(changed.body["available_count"], 0, "{}", changed.body);
    let second = acquire(&dev).await;
    assert_eq!(second["viewport"]["width"], 800);
    assert_eq!(second["timeout_seconds"], 60);
    let width = "return page.evaluate(() => screen.width)";
    assert_eq!(run(&dev, &second, width).await, 800);
    assert_eq!(run(&dev, &leased, width).await, 1920);

    let refused = dev.delete("/browser_pools/n").await;
    refused.assert_error(409, "conflict");
    let deleted = dev.delete("/browser_pools/n?force=true").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    assert_eq!(dev.get("/browsers").await.body, json!([]));
    until("the hosts to be stopped", async || {
        let are_gone = dev.descendants_with("chromium").is_empty();
        (are_gone && hosts(&dev).await.is_empty()).then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn pool_grows_shrinks_and_recovers_from_lost_hosts() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 1})).await;
    counts_are(&dev, 1, 0).await;
    // An idle browser whose agent has died is not handed out.
    kill(dev.only_agent().await, Signal::SIGKILL).unwrap();
    let leased = acquire(&dev).await;
    assert_eq!(run(&dev, &leased, "return 7").await, 7);
    dev.patch("/browser_pools/n", json!({"size": 2})).await;
    counts_are(&dev, 1, 1).await;
    dev.patch("/browser_pools/n", json!({"size": 0})).await;
    counts_are(&dev, 0, 1).await;
    assert_eq!(run(&dev, &leased, "return 7").await, 7);
    release(&dev, &leased, true).await;
    counts_are(&dev, 0, 0).await;
    until("no host of the pool", async || {
        hosts(&dev).await.is_empty().then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn lease_of_a_dead_client_is_reclaimed_after_its_idle_timeout() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 1, "timeout_seconds": 10})).await;
    let lost = acquire(&dev).await;
    let next = acquire(&dev).await;
    assert_ne!(next["session_id"], lost["session_id"]);
    counts_are(&dev, 0, 1).await;
    let request = json!({"session_id": lost["session_id"]});
    let released = dev.post("/browser_pools/n/release", request).await;
    released.assert_error(409, "not_leased");
    dev.finish().await;
}

#[tokio::test]
async fn hosts_are_replaced_after_their_last_lease() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 1, "max_leases": 2})).await;
    let mut used = Vec::new();
    for _ in 0..4 {
        let leased = acquire(&dev).await;
        let host = format!(
            "SELECT id FROM hosts WHERE session_id = '{}'",
            leased["session_id"].as_str().unwrap()
        );
        let rows = dev.rows(&host).await;
        used.push(rows[0].try_get_by_index::<String>(0).unwrap());
        release(&dev, &leased, true).await;
        counts_are(&dev, 1, 0).await;
    }
    let different: HashSet<&String> = used.iter().collect();
    assert_eq!(different.len(), 2, "{used:?}");
    assert_eq!(used[0], used[1]);
    dev.finish().await;
}

#[tokio::test]
async fn pool_is_filled_again_after_a_crash_of_control() {
    let dev = Dev::start().await;
    pool(&dev, json!({"size": 1})).await;
    counts_are(&dev, 1, 0).await;
    let leased = acquire(&dev).await;
    let state = dev.crash().await;
    let dev = Dev::start_in(state, &[]).await;
    counts_are(&dev, 1, 0).await;
    let request = json!({"session_id": leased["session_id"]});
    let released = dev.post("/browser_pools/n/release", request).await;
    released.assert_error(409, "not_leased");
    let again = acquire(&dev).await;
    assert_eq!(run(&dev, &again, "return 7").await, 7);
    dev.finish().await;
}

#[tokio::test]
async fn registered_host_serves_a_pool_and_then_others() {
    let dev = fleet_control().await;
    let (_agent, host) = join(&dev, Start::headless()).await;
    pool(&dev, json!({"size": 1})).await;
    let first = acquire(&dev).await;
    plant(&dev, &first).await;
    // Reserved for the pool, also between two leases.
    release(&dev, &first, true).await;
    let refused = dev.post("/browsers", json!({"headless": true})).await;
    refused.assert_error(503, "unavailable");
    let second = acquire(&dev).await;
    finds_nothing(&dev, &second).await;
    release(&dev, &second, true).await;
    counts_are(&dev, 1, 0).await;
    let deleted = dev.delete("/browser_pools/n").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.body);
    host_is(&dev, &host, "ready").await;
    let browser = until("a browser", async || {
        let created = dev.post("/browsers", json!({"headless": true})).await;
        (created.status == StatusCode::CREATED).then_some(created.body)
    })
    .await;
    finds_nothing(&dev, &browser).await;
    dev.finish().await;
}

#[tokio::test]
async fn browsers_of_a_pool_start_with_the_current_version_of_its_profile() {
    let dev = Dev::start().await;
    let shop = profile(&dev, "shop").await;
    let empty = profile(&dev, "empty").await;
    let writer = dev.browser(json!({"timeout_seconds": 600})).await;
    let save = async |login: &str| {
        log_in(&dev, &writer, login).await;
        saved(&dev, &writer, json!({"name": "shop"})).await
    };
    save("one").await;
    let settings = json!({
        "size": 1, "profile": {"name": "shop"}, "refresh_on_profile_update": true,
    });
    pool(&dev, settings).await;
    counts_are(&dev, 1, 0).await;
    let first = acquire(&dev).await;
    let of_pool = json!({"id": shop, "name": "shop", "save_changes": false});
    assert_eq!(first["profile"], of_pool);
    assert_eq!(login_of(&dev, &first).await, logged_in("one"));
    // A client's changes reach neither the profile nor the next client.
    log_in(&dev, &first, "other").await;
    release(&dev, &first, true).await;
    counts_are(&dev, 1, 0).await;
    assert_eq!(found(&dev, "shop").await["version"], 1);
    // From now on, the idle browser is not handed out.
    save("two").await;
    let second = acquire(&dev).await;
    assert_eq!(login_of(&dev, &second).await, logged_in("two"));
    save("three").await;
    counts_are(&dev, 0, 1).await;
    assert_eq!(login_of(&dev, &second).await, logged_in("two"));
    release(&dev, &second, true).await;

    // A lease's own profile replaces the pool's, even one without content.
    let own = json!({"profile": {"name": "empty", "save_changes": true}});
    let third = acquire_with(&dev, own).await;
    let own = json!({"id": empty, "name": "empty", "save_changes": true});
    assert_eq!(third["profile"], own);
    assert_eq!(login_of(&dev, &third).await, [None, None, None]);
    log_in(&dev, &third, "four").await;
    release(&dev, &third, true).await;
    until("the save", async || {
        (found(&dev, "empty").await["version"] == 1).then_some(())
    })
    .await;
    dev.patch("/browser_pools/n", json!({"profile": {"id": empty}}))
        .await;
    let fourth = acquire(&dev).await;
    assert_eq!(login_of(&dev, &fourth).await, logged_in("four"));
    dev.finish().await;
}

#[tokio::test]
async fn save_of_a_released_browser_is_finished_after_a_stop_of_control() {
    let mut s3 = S3Server::start().await;
    let dev = Dev::start_with_variables(State::new(), &FLEET, s3.variables()).await;
    let (agent, host) = join(&dev, Start::headless()).await;
    profile(&dev, "shop").await;
    pool(&dev, json!({"size": 1})).await;
    let saving = json!({"profile": {"name": "shop", "save_changes": true}});
    let browser = acquire_with(&dev, saving).await;
    log_in(&dev, &browser, "one").await;
    // The save cannot be completed before the stop.
    kill(s3.pid(), Signal::SIGKILL).unwrap();
    let request = json!({"session_id": browser["session_id"]});
    let request = dev
        .request(Method::POST, "/browser_pools/n/release")
        .json(&request);
    let releasing = tokio::spawn(request.send());
    until("an attempt to save", async || {
        let log = dev.log();
        log.contains("cannot save the profile of a browser yet")
            .then_some(())
    })
    .await;
    let base_url = dev.base_url.clone();
    let state = dev.finish().await;
    // Answered or not, the browser has ended for its client.
    let _ = releasing.await.unwrap();
    s3.restart().await;
    let address = base_url.trim_start_matches("http://");
    let options = [&FLEET[..], &["--listen", address]].concat();
    let dev = Dev::start_with_variables(state, &options, s3.variables()).await;
    until("the save", async || {
        (found(&dev, "shop").await["version"] == 1).then_some(())
    })
    .await;
    counts_are(&dev, 1, 0).await;
    host_is(&dev, &host, "leased").await;
    let reading = json!({"profile": {"name": "shop"}});
    let next = acquire_with(&dev, reading).await;
    assert_eq!(login_of(&dev, &next).await, logged_in("one"));
    agent.stop().await;
    dev.finish().await;
}
