//! `GET /process/{process_id}/status` of the agent.

use serde_json::json;

use crate::support::{
    agent::Start,
    spawned::{shell, spawn},
    wait::until,
};

#[tokio::test]
async fn status_sums_over_the_session() {
    let agent = Start::without_browser().listening().await;
    let idle = spawn(&agent, json!({"command": "sleep", "args": ["1000"]})).await;
    let status = idle.status().await;
    assert_eq!(status["state"], "running");
    assert!(status.get("exit_code").is_none(), "{status}");
    assert!(status["mem_bytes"].as_u64().unwrap() > 10_000, "{status}");

    // A child uses the CPU and the memory.
    let hold = "x = b'x' * (50 << 20)\nwhile True: pass";
    let busy = spawn(
        &agent,
        json!({"command": "sh", "args": ["-c", "python3 -c \"$0\" & wait", hold]}),
    )
    .await;
    let status = until("CPU and memory usage", async || {
        let status = busy.status().await;
        let is_busy = status["cpu_pct"].as_f64().unwrap() > 1.0;
        (is_busy && status["mem_bytes"].as_u64().unwrap() > 50 << 20).then_some(status)
    })
    .await;
    assert!(
        status["cpu_pct"].as_f64().unwrap() < 250.0,
        "one process is busy: {status}"
    );
    until("the other process to be idle", async || {
        (idle.status().await["cpu_pct"].as_f64().unwrap() < 1.0).then_some(())
    })
    .await;

    busy.kill("KILL").await;
    let status = until("the process to end", async || {
        let status = busy.status().await;
        (status["mem_bytes"] == 0 && status["state"] == "exited").then_some(status)
    })
    .await;
    assert_eq!(status["exit_code"], 137);
    assert_eq!(shell(&agent, "exit 255").await.exited().await, 255);
    agent.stop().await;
}
