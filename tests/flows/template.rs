//! The agent of a machine that others are resumed from, called as the hooks of the machine do.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    fleet_agent::{fleet_control, joining, ready},
    fleet_host::join_token,
    processes,
    wait::until,
};

fn template(start: Start, dev: &Dev) -> Start {
    start
        .without_token()
        .with(["--control-url", &dev.base_url, "--template"])
}

fn socket(agent: &TestAgent) -> PathBuf {
    agent.state_dir().join("run/hooks.sock")
}

async fn answer_to(agent: &TestAgent, line: &str) -> Value {
    let stream = UnixStream::connect(socket(agent)).await.unwrap();
    let mut stream = BufReader::new(stream);
    stream.write_all(line.as_bytes()).await.unwrap();
    stream.write_all(b"\n").await.unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).await.unwrap();
    serde_json::from_str(&answer).unwrap()
}

async fn prepared(agent: &TestAgent) {
    until("a machine that is ready for a snapshot", async || {
        let answer = answer_to(agent, "{\"hook\": \"prepare\"}").await;
        match answer["answer"].as_str() {
            Some("prepared") => Some(()),
            Some("not_ready") => None,
            _ => panic!("{answer}"),
        }
    })
    .await;
}

fn resumed_hook(token: &str) -> String {
    json!({"hook": "resumed", "join_token": token, "advertise": null}).to_string()
}

/// Returns the processes that run pages and scripts, or are ready to.
fn with_random_numbers(agent: &TestAgent) -> BTreeSet<u32> {
    let processes = processes::naming(&agent.state_dir()).into_iter();
    let processes = processes.filter(|process| {
        let command = &process.command;
        command.contains("--type=renderer") || command.contains("berth-script")
    });
    processes.map(|process| process.pid).collect()
}

#[tokio::test]
async fn resumed_machine_has_new_processes_a_new_key_and_keeps_its_identity() {
    let dev = fleet_control().await;
    let agent = template(Start::headless().with(["--spare"]), &dev)
        .listening()
        .await;
    prepared(&agent).await;
    prepared(&agent).await;
    let earlier = until("workers and pages", async || {
        let found = with_random_numbers(&agent);
        // Two workers and at least one page, for each of the sessions.
        (found.len() >= 6).then_some(found)
    })
    .await;
    let key = agent.state_dir().join("run/host-key.pem");
    assert!(!key.exists());
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    for invalid in ["", "{}", "{\"hook\": \"resumed\"}", "{\"hook\": \"other\"}"] {
        let answer = answer_to(&agent, invalid).await;
        assert_eq!(answer["answer"], "refused", "{invalid}: {answer}");
    }

    let token = join_token(&dev, json!({})).await;
    let resumed = answer_to(&agent, &resumed_hook(&token)).await;
    assert_eq!(resumed["answer"], "resumed", "{resumed}");
    let left = with_random_numbers(&agent);
    assert!(left.is_disjoint(&earlier), "{left:?} of {earlier:?}");
    let host = ready(&dev, &agent).await;
    assert_eq!(host["boot_id"], resumed["boot_id"]);
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_ne!(host["boot_id"], kernel.trim());
    until("the end of the hooks", async || {
        (!socket(&agent).exists()).then_some(())
    })
    .await;
    assert!(
        !agent.log().contains(&token),
        "the join token is in the log"
    );

    let directory = agent.kill().await;
    let again = template(TestAgent::again(directory), &dev).with(["--headless"]);
    let agent = again.listening().await;
    let found = ready(&dev, &agent).await;
    assert_eq!(
        (&found["id"], &found["boot_id"]),
        (&host["id"], &host["boot_id"])
    );
    agent.stop().await;
    dev.finish().await;
}

#[tokio::test]
async fn template_has_neither_token_nor_address_nor_key() {
    let dev = fleet_control().await;
    let advertised = template(Start::without_browser(), &dev).with(["--advertise=10.0.0.7:10001"]);
    let joining =
        joining(Start::without_browser(), &dev, "a-token-that-is-not-used").with(["--template"]);
    for (start, option) in [(advertised, "--advertise"), (joining, "--join-token-file")] {
        let output = start.command().output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let expected = format!("{option}: cannot be combined with --template");
        assert!(error.contains(&expected), "{error}");
        assert!(!error.contains("a-token-that-is-not-used"), "{error}");
    }
    let start = template(Start::without_browser(), &dev);
    let run = start.state_dir().join("run");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("host-key.pem"), "a key").unwrap();
    let output = start.command().output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("the key of a host"), "{error}");
    dev.finish().await;
}
