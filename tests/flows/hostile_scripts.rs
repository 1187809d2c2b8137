//! Scripts that misbehave: each ends within its bounds, the next call succeeds, and other calls are
//! not affected.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    processes::{resident_kib, signal},
    scripts::{error_of, execute, idle_counts, result_of, start, titles, workers},
    wait::until,
};

/// The most MiB by which the agent's own memory may grow over many calls.
const MAX_GROWTH_MIB: u64 = 5;

/// Returns the number of tabs that were reported as hung.
fn hung_tabs(agent: &TestAgent) -> usize {
    agent.log().matches("tab hangs").count()
}

async fn next_call_succeeds(agent: &TestAgent) {
    let code = "await page.goto('data:text/html,<title>right</title>'); return await page.title()";
    assert_eq!(result_of(agent, code).await, "right");
}

#[tokio::test]
async fn many_calls_leave_nothing_behind() {
    let agent = Start::headless().ready().await;
    let burst = async |round: usize| {
        let calls = (0..8).map(|n| {
            let code = format!("return {round} * 100 + {n} + await page.evaluate(() => 1)");
            let agent = &agent;
            async move { assert_eq!(result_of(agent, &code).await, round * 100 + n + 1) }
        });
        futures::future::join_all(calls).await;
    };
    burst(0).await;
    for n in 0..20 {
        assert_eq!(result_of(&agent, &format!("return {n}")).await, n);
    }
    let before = idle_counts(&agent, 2).await;
    let memory = resident_kib(agent.pid());
    for n in 0..200 {
        let code = match n % 2 {
            0 => format!("return {n}"),
            _ => format!("return {n} + await page.evaluate(() => 0)"),
        };
        assert_eq!(result_of(&agent, &code).await, n);
    }
    burst(1).await;
    // Connections of other processes change the table of sockets while it is read, so only what
    // remains was left behind.
    let mut last = None;
    until("the initial state", async || {
        let mut traces = idle_counts(&agent, 2).await;
        // On a busy machine a tab may seem to hang, and a call opens a new one.
        traces.tabs -= hung_tabs(&agent).min(traces.tabs.saturating_sub(before.tabs));
        if last.as_ref() != Some(&traces) {
            eprintln!("now {traces:?}, before {before:?}");
        }
        let same = traces == before;
        last = Some(traces);
        same.then_some(())
    })
    .await;
    let grown = resident_kib(agent.pid()).saturating_sub(memory);
    assert!(grown < MAX_GROWTH_MIB << 10, "grown by {grown} KiB");
    agent.stop().await;
}

#[tokio::test]
async fn endless_scripts_end_at_their_timeout() {
    let agent = Start::headless().ready().await;
    for code in [
        "while (true) {}",
        // The function returns nothing, or the promises would form a chain and fill the heap.
        "const again = () => { Promise.resolve().then(again) }; again(); await new Promise(() => {})",
        "for (;;) await null",
        "for (;;) await page.evaluate(() => 1)",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        "await page.evaluate(() => { while (true) {} })",
        "try { await new Promise(() => {}) } finally { while (true) {} }",
        "setInterval(() => page.evaluate(() => 1).catch(() => {}), 0); await new Promise(() => {})",
    ] {
        let error = error_of(&agent, code, 1).await;
        assert!(error.contains("1 s"), "{error}\n{code}");
        next_call_succeeds(&agent).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn endless_script_does_not_affect_other_calls() {
    let agent = Start::headless().ready().await;
    let endless = start(&agent, "while (true) {}", json!({"timeout_sec": 300})).await;
    for _ in 0..3 {
        next_call_succeeds(&agent).await;
        // A new tab, and a pop-up, do not wait for the endless script's debugger.
        let code = "const p = await context.newPage(); await p.goto('data:text/html,<title>new</title>'); \
            const [popup] = await Promise.all([p.waitForEvent('popup'), p.evaluate(() => { window.open('about:blank') })]); \
            await popup.waitForLoadState(); await popup.close(); const t = await p.title(); await p.close(); return t";
        assert_eq!(result_of(&agent, code).await, "new");
    }
    assert!(!endless.is_finished());
    endless.abort();
    idle_counts(&agent, 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn script_cannot_touch_the_page_after_its_result() {
    let agent = Start::headless().ready().await;
    let flood = "for (;;) { page.evaluate(() => { window.n = (window.n ?? 0) + 1 }).catch(() => {}); await new Promise(r => setTimeout(r, 0)) }";
    error_of(&agent, flood, 1).await;
    let first = result_of(&agent, "return await page.evaluate(() => window.n)").await;
    assert!(first.as_i64() > Some(0), "{first}");
    for _ in 0..3 {
        assert_eq!(
            result_of(&agent, "return await page.evaluate(() => window.n)").await,
            first
        );
    }
    agent.stop().await;
}

#[tokio::test]
async fn script_that_runs_out_of_memory_fails_alone() {
    let agent = Start::headless()
        .with(["--script-heap-mb", "64"])
        .ready()
        .await;
    for code in [
        "const all = []; for (;;) all.push(new Array(1000).fill(all.length))",
        "let text = 'x'; for (;;) text += text",
        "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))",
    ] {
        error_of(&agent, code, 20).await;
        next_call_succeeds(&agent).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn script_that_ends_its_process_is_an_error() {
    let agent = Start::headless().ready().await;
    for code in [
        "process.exit(0)",
        "globalThis.process.abort()",
        "process.kill(process.pid)",
        "Deno.exit(0)",
        "Deno.core.ops.op_exit(0)",
        "globalThis.constructor.constructor('return process')().exit(1)",
        "await import('node:process').then(p => p.exit(0))",
        "return } ); process.exit(0); (async () => {",
    ] {
        error_of(&agent, code, 5).await;
        next_call_succeeds(&agent).await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn oversized_results_and_output_are_truncated_with_a_notice() {
    let agent = Start::headless().ready().await;
    let answer = execute(
        &agent,
        json!({"code": "const part = 'x'.repeat(1 << 20); return Array(100).fill(part)"}),
    )
    .await;
    let result = answer["result"].to_string();
    assert!(result.len() < 10 << 20, "{} bytes", result.len());
    if answer["success"] == true {
        assert!(
            answer["stderr"].as_str().unwrap().contains("truncated"),
            "{}",
            answer["stderr"]
        );
    }
    next_call_succeeds(&agent).await;

    let code = "const line = 'y'.repeat(1 << 16); for (let i = 0; i < 1600; i++) { console.log(line); console.error(line) } return 1";
    let answer = execute(&agent, json!({"code": code})).await;
    assert_eq!(answer["result"], 1, "{}", answer["error"]);
    for stream in ["stdout", "stderr"] {
        let text = answer[stream].as_str().unwrap();
        assert!(text.len() < (1 << 20) + 4096, "{} bytes", text.len());
        assert!(text.contains("truncated"), "{stream}");
    }
    next_call_succeeds(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn results_that_are_not_json_do_not_break_the_response() {
    let agent = Start::headless().ready().await;
    for code in [
        "const a: any = {}; a.self = a; return a",
        "return 10n",
        "return { big: 10n }",
        "return () => 1",
        "return Symbol('x')",
        "return new Proxy({}, { ownKeys() { throw new Error('no') } })",
        "return { toJSON() { throw new Error('no') } }",
        "return page",
        "return { get x() { throw new Error('no') } }",
    ] {
        let answer = execute(&agent, json!({"code": code})).await;
        // There is an error, or the value has a representation in JSON.
        assert!(
            answer["success"] == true || answer["error"].is_string(),
            "{code}: {answer}"
        );
        assert_eq!(result_of(&agent, "return 1").await, 1);
    }
    agent.stop().await;
}

#[tokio::test]
async fn hung_tabs_are_hidden_from_scripts() {
    let agent = Start::headless().ready().await;
    // A tab whose only navigation was refused, and one in an endless loop.
    result_of(
        &agent,
        "await page.evaluate(() => { window.open('data:text/html,never') })",
    )
    .await;
    let loops = "const p = await context.newPage(); await p.goto('data:text/html,<title>loops</title>'); \
        await p.evaluate(() => { setTimeout(() => { while (true) {} }, 0) })";
    result_of(&agent, loops).await;
    for _ in 0..4 {
        next_call_succeeds(&agent).await;
    }
    let tabs = titles(&agent).await.len();
    next_call_succeeds(&agent).await;
    assert_eq!(
        titles(&agent).await.len(),
        tabs,
        "{:?}",
        titles(&agent).await
    );
    assert_eq!(
        result_of(
            &agent,
            "for (const p of context.pages()) await p.title(); return 1"
        )
        .await,
        1
    );
    agent.stop().await;
}

#[tokio::test]
async fn many_tabs_do_not_delay_the_next_call() {
    let agent = Start::headless().ready().await;
    let code =
        "for (let i = 0; i < 50; i++) await context.newPage(); return context.pages().length";
    assert_eq!(result_of(&agent, code).await, 51);
    next_call_succeeds(&agent).await;
    let code =
        "for (const p of context.pages().slice(1)) await p.close(); return context.pages().length";
    assert_eq!(result_of(&agent, code).await, 1);
    agent.stop().await;
}

#[tokio::test]
async fn killed_worker_is_reported_with_its_signal() {
    let agent = Start::headless().ready().await;
    idle_counts(&agent, 2).await;
    let running = start(
        &agent,
        "console.log('so far'); const marker = await context.newPage(); \
         await marker.setContent('<title>printed</title>'); await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    until("the second tab's title", async || {
        titles(&agent)
            .await
            .contains(&"printed".to_owned())
            .then_some(())
    })
    .await;
    let killed = workers(&agent);
    for worker in &killed {
        signal(*worker, Signal::SIGKILL);
    }
    let answer: Value = running.await.unwrap();
    assert_eq!(answer["success"], false);
    assert!(
        answer["error"].as_str().unwrap().contains("signal 9"),
        "{answer}"
    );
    assert_eq!(answer["stdout"], "so far\n");
    // Warm workers were killed as well. A script that gets one before its end is noticed would end
    // with it.
    until("the killed workers are reaped", async || {
        let remains = killed
            .iter()
            .any(|pid| Path::new(&format!("/proc/{pid}")).exists());
        (!remains).then_some(())
    })
    .await;
    next_call_succeeds(&agent).await;
    idle_counts(&agent, 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn killed_browser_is_reported_and_restarted() {
    let agent = Start::headless().ready().await;
    let running = start(
        &agent,
        "await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    let pid = agent.chromium_number("pid").await;
    signal(pid.try_into().unwrap(), Signal::SIGKILL);
    let answer: Value = running.await.unwrap();
    assert_eq!(answer["success"], false);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("browser went away"),
        "{answer}"
    );
    next_call_succeeds(&agent).await;
    idle_counts(&agent, 2).await;
    agent.stop().await;
}

#[tokio::test]
async fn agent_reports_the_scripts_that_its_shutdown_kills() {
    let agent = Start::headless().ready().await;
    let running = start(
        &agent,
        "await new Promise(() => {})",
        json!({"timeout_sec": 300}),
    )
    .await;
    agent.stop().await;
    let answer: Value = running.await.unwrap();
    assert_eq!(answer["success"], false);
    assert!(
        answer["error"].as_str().unwrap().contains("stopped"),
        "{answer}"
    );
}

#[tokio::test]
async fn leftovers_of_a_killed_agent_are_removed() {
    let agent = Start::headless().ready().await;
    idle_counts(&agent, 2).await;
    let directory = agent.kill().await;
    let agent = TestAgent::again(directory)
        .with(["--headless"])
        .ready()
        .await;
    idle_counts(&agent, 2).await;
    until("a successful call", async || {
        (result_of(&agent, "return 1").await == 1).then_some(())
    })
    .await;
    agent.stop().await;
}
