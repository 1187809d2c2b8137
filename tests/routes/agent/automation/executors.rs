//! `POST /automation/execute` with an executor

use futures::{StreamExt, stream::FuturesUnordered};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    scripts::{execute, idle_counts, start_titled, workers},
    wait::until,
};

async fn run(agent: &TestAgent, executor: &str, code: &str) -> Value {
    execute(agent, json!({"code": code, "executor": executor})).await
}

async fn result(agent: &TestAgent, executor: &str, code: &str) -> Value {
    let answer = run(agent, executor, code).await;
    assert_eq!(answer["success"], true, "{answer}");
    answer["result"].clone()
}

#[tokio::test]
async fn executor_keeps_its_own_globals() {
    let agent = Start::headless().ready().await;
    assert_eq!(result(&agent, "a", "globalThis.n = 1; return n").await, 1);
    assert_eq!(
        result(&agent, "b", "return typeof globalThis.n").await,
        "undefined"
    );
    assert_eq!(result(&agent, "a", "return ++globalThis.n").await, 2);
    // A script that throws does not end its executor.
    assert_eq!(
        run(&agent, "a", "throw new Error('x')").await["success"],
        false
    );
    assert_eq!(result(&agent, "a", "return ++globalThis.n").await, 3);
    assert_eq!(
        result(
            &agent,
            "a",
            "await page.goto('data:text/html,<title>t</title>'); return await page.title()"
        )
        .await,
        "t"
    );
    agent.stop().await;
}

#[tokio::test]
async fn calls_of_an_executor_run_in_sequence() {
    let agent = Start::headless().ready().await;
    result(
        &agent,
        "q",
        "globalThis.busy = 0; globalThis.ran = 0; return 1",
    )
    .await;
    let code = "if (busy++) throw new Error('two at once'); await page.evaluate(() => 1); busy--; return ++ran";
    let calls = (0..6).map(|_| result(&agent, "q", code));
    let mut ran: Vec<_> = futures::future::join_all(calls)
        .await
        .iter()
        .map(|n| n.as_i64().unwrap())
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, [1, 2, 3, 4, 5, 6]);
    agent.stop().await;
}

#[tokio::test]
async fn timeout_ends_an_executor_and_is_reported() {
    let agent = Start::headless().ready().await;
    result(&agent, "t", "globalThis.n = 1").await;
    let body = json!({"code": "while (true) {}", "executor": "t", "timeout_sec": 1});
    let answer = execute(&agent, body).await;
    assert_eq!(answer["success"], false);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("executor `t` has ended"),
        "{answer}"
    );
    assert_eq!(
        result(&agent, "t", "return typeof globalThis.n").await,
        "undefined"
    );
    agent.stop().await;
}

#[tokio::test]
async fn closing_the_browser_ends_an_executor_and_is_reported() {
    let agent = Start::headless().ready().await;
    let answer = run(&agent, "c", "await browser.close(); return 'closed'").await;
    assert_eq!(answer["result"], "closed", "{answer}");
    assert!(
        answer["stderr"]
            .as_str()
            .unwrap()
            .contains("executor `c` has ended"),
        "{answer}"
    );
    let code = "await page.goto('about:blank'); return page.url()";
    assert_eq!(result(&agent, "c", code).await, "about:blank");
    agent.stop().await;
}

#[tokio::test]
async fn code_of_an_earlier_call_cannot_act_between_calls() {
    let agent = Start::headless().ready().await;
    let leave = "globalThis.refused = 0;
        globalThis.called = false;
        setInterval(() => {
            if (called) return;
            page.evaluate(() => { window.touched = true; }).catch(() => { globalThis.refused++; });
        }, 5);";
    result(&agent, "left", leave).await;
    let check = "globalThis.called = true;
        const touched = await page.evaluate(() => window.touched ?? false);
        globalThis.called = false;
        return { refused, touched };";
    until("a refusal between two calls", async || {
        let seen = result(&agent, "left", check).await;
        assert_eq!(seen["touched"], false, "{seen}");
        (seen["refused"].as_i64().unwrap() > 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn idle_executor_is_evicted_and_busy_ones_are_not() {
    let agent = Start::headless()
        .with(["--max-executes", "16"])
        .ready()
        .await;
    result(&agent, "idle", "globalThis.n = 1").await;
    let mut running = Vec::new();
    for n in 1..=8 {
        // The eighth one evicts the idle one.
        let body = json!({"executor": format!("busy{n}"), "timeout_sec": 300});
        running.push(
            start_titled(
                &agent,
                &format!("run{n}"),
                "await new Promise(() => {})",
                body,
            )
            .await,
        );
    }
    let request = agent
        .post("/automation/execute")
        .json(&json!({"code": "return 1", "executor": "ninth"}));
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    assert_eq!(answer["code"], "limit_exceeded");
    for call in &running {
        call.abort();
    }
    idle_counts(&agent, 2).await;
    assert_eq!(
        result(&agent, "idle", "return typeof globalThis.n").await,
        "undefined"
    );
    agent.stop().await;
}

#[tokio::test]
async fn executor_ends_when_idle_and_with_its_browser() {
    let agent = Start::headless()
        .with(["--executor-idle-seconds", "1", "--warm-workers", "0"])
        .ready()
        .await;
    result(&agent, "e", "return 1").await;
    until("the idle executor's end", async || {
        workers(&agent).is_empty().then_some(())
    })
    .await;
    agent.stop().await;

    let agent = Start::headless()
        .with(["--warm-workers", "0"])
        .ready()
        .await;
    result(&agent, "e", "globalThis.n = 1").await;
    assert_eq!(workers(&agent).len(), 1);
    agent.ok(agent.post("/chromium/restart")).await;
    until("the executor's end", async || {
        workers(&agent).is_empty().then_some(())
    })
    .await;
    assert_eq!(
        result(&agent, "e", "return typeof globalThis.n").await,
        "undefined"
    );
    agent.stop().await;
}

#[tokio::test]
async fn queued_calls_of_an_executor_take_no_slots() {
    let agent = Start::headless()
        .with(["--max-executes", "2"])
        .ready()
        .await;
    let running = start_titled(
        &agent,
        "first",
        "await new Promise(() => {})",
        json!({"executor": "q", "timeout_sec": 300}),
    )
    .await;
    // One call more than the queue holds.
    let mut waiting: FuturesUnordered<_> = (0..17)
        .map(|n| {
            let code = format!("return {n}");
            let body = json!({"code": code, "executor": "q"});
            let request = agent.post("/automation/execute").json(&body);
            agent.answer(request)
        })
        .collect();
    let (status, answer) = waiting.next().await.unwrap();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("queued calls") && message.contains("(16)"),
        "{message}"
    );
    // The remaining slot is free for another call.
    let other = execute(&agent, json!({"code": "return 'other'"})).await;
    assert_eq!(other["result"], "other", "{other}");
    running.abort();
    while let Some((status, answer)) = waiting.next().await {
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["success"], true, "{answer}");
    }
    drop(waiting);
    agent.stop().await;
}

#[tokio::test]
async fn executor_without_a_free_slot_is_429() {
    let agent = Start::headless()
        .with(["--max-executes", "1"])
        .ready()
        .await;
    let running = start_titled(
        &agent,
        "running",
        "await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    let request = agent
        .post("/automation/execute")
        .json(&json!({"code": "return 1", "executor": "e"}));
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("limit of running scripts"),
        "{answer}"
    );
    running.abort();
    agent.stop().await;
}
