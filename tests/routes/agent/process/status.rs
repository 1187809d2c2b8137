use serde_json::json;

use crate::support::{
    agent::Start,
    spawned::{shell, spawn},
    wait::until,
};

#[tokio::test]
async fn status_sums_over_all_of_a_process() {
    let agent = Start::without_browser().listening().await;
    let idle = spawn(&agent, json!({"command": "sleep", "args": ["1000"]})).await;
    let status = idle.status().await;
    assert_eq!(status["state"], "running");
    assert!(status.get("exit_code").is_none(), "{status}");
    assert!(status["mem_bytes"].as_u64().unwrap() > 10_000, "{status}");

    // The work and the memory are a child's.
    let hold = "x = b'x' * (50 << 20)\nwhile True: pass";
    let busy = spawn(
        &agent,
        json!({"command": "sh", "args": ["-c", "python3 -c \"$0\" & wait", hold]}),
    )
    .await;
    let status = until("work and memory", async || {
        let status = busy.status().await;
        let works = status["cpu_pct"].as_f64().unwrap() > 1.0;
        (works && status["mem_bytes"].as_u64().unwrap() > 50 << 20).then_some(status)
    })
    .await;
    assert!(
        status["cpu_pct"].as_f64().unwrap() < 250.0,
        "one of it works: {status}"
    );
    until("an idle process", async || {
        (idle.status().await["cpu_pct"].as_f64().unwrap() < 1.0).then_some(())
    })
    .await;

    busy.kill("KILL").await;
    let status = until("an end", async || {
        let status = busy.status().await;
        (status["mem_bytes"] == 0 && status["state"] == "exited").then_some(status)
    })
    .await;
    assert_eq!(status["exit_code"], 137);
    assert_eq!(shell(&agent, "exit 255").await.exited().await, 255);
    agent.stop().await;
}
