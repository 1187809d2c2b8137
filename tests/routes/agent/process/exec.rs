//! `POST /process/exec` of the agent.

use std::{fs, path::Path};

use nix::sys::{
    resource::{Resource, getrlimit},
    signal::Signal,
};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    cgroups::LEAVE_CGROUP,
    processes::{is_alive, signal},
    scripts::metric,
    spawned::{Output, exec, exec_shell, executed},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn pid_in(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[tokio::test]
async fn exec_returns_output_and_exit_code() {
    let agent = agent().await;
    let output = exec_shell(&agent, "echo out; echo err >&2; cat; exit 3").await;
    let expected = Output {
        stdout: "out\n".into(),
        stderr: "err\n".into(),
        exit_code: 3,
    };
    assert_eq!(output, expected, "standard input is empty");
    assert_eq!(exec_shell(&agent, "kill -9 $$").await.exit_code, 137);
    let (_, response) = exec(&agent, json!({"command": "true"})).await;
    assert!(response["duration_ms"].is_u64(), "{response}");
    for field in ["stdout_truncated", "stderr_truncated"] {
        assert_eq!(response[field], false);
    }
    let (status, response) = exec(&agent, json!({"command": "no-such-program"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(response["details"][0]["code"], "command");
    agent.stop().await;
}

/// The kernel kills programs before the agent, in whose memory they start.
#[tokio::test]
async fn program_has_an_oom_score_that_the_agent_has_not() {
    let agent = agent().await;
    let score = format!("/proc/{}/oom_score_adj", agent.pid());
    let before = fs::read_to_string(&score).unwrap();
    assert_ne!(before, "800\n");
    let output = exec_shell(&agent, "cat /proc/self/oom_score_adj").await;
    assert_eq!(output.stdout, "800\n");
    assert_eq!(fs::read_to_string(&score).unwrap(), before);
    agent.stop().await;
}

#[tokio::test]
async fn excess_output_is_truncated_and_reported() {
    let agent = Start::without_browser()
        .with(["--exec-output-mb", "1"])
        .listening()
        .await;
    let line = "head -c 1048576 /dev/zero; (echo begin; head -c 20000000 /dev/zero) >&2";
    let body = json!({"command": "sh", "args": ["-c", line]});
    let (_, response) = exec(&agent, body).await;
    assert_eq!(response["stdout_truncated"], false);
    assert_eq!(response["stderr_truncated"], true);
    let output = executed(&response);
    assert_eq!(output.stdout.len(), 1 << 20);
    assert_eq!(output.stderr.len(), 1 << 20);
    assert!(output.stderr.starts_with("begin\n"));
    assert_eq!(output.exit_code, 0);
    agent.stop().await;
}

#[tokio::test]
async fn concurrent_executions_share_one_memory_budget() {
    let agent = Start::without_browser()
        .with(["--exec-output-mb", "1", "--exec-total-mb", "1"])
        .listening()
        .await;
    let directory = tempfile::TempDir::new().unwrap();
    let (written, go) = (
        directory.path().join("written"),
        directory.path().join("go"),
    );
    let line = format!(
        "head -c 1048576 /dev/zero; touch {}; until [ -e {} ]; do sleep 0.1; done",
        written.display(),
        go.display()
    );
    let one_megabyte = json!({"command": "head", "args": ["-c", "1048576", "/dev/zero"]});
    let first = async {
        let body = json!({"command": "sh", "args": ["-c", line]});
        exec(&agent, body).await
    };
    let second = async {
        until("the first output", async || written.exists().then_some(())).await;
        // The budget is used up except for what is still in the pipe or being read.
        let (status, response) = exec(&agent, one_megabyte.clone()).await;
        fs::write(&go, "").unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!(response["stdout_truncated"], true);
        let output = executed(&response);
        assert_eq!(output.exit_code, 0);
        assert!(output.stdout.len() <= 512 << 10, "{}", output.stdout.len());
    };
    tokio::join!(first, second);
    until("the budget to be released", async || {
        let (_, response) = exec(&agent, one_megabyte.clone()).await;
        (response["stdout_truncated"] == false).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn output_of_background_processes_until_their_kill_is_returned() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let count = directory.path().join("count");
    // The process appends to the count file after each line of output.
    let line = format!(
        "(while :; do echo x; echo x >> {0}; done) & until [ -e {0} ]; do sleep 0.1; done; exit 5",
        count.display()
    );
    let (_, response) = exec(&agent, json!({"command": "sh", "args": ["-c", line]})).await;
    let output = executed(&response);
    assert_eq!(output.exit_code, 5);
    let written = output.stdout.lines().count();
    let counted = fs::read_to_string(&count).unwrap().lines().count();
    assert!(
        [counted, counted + 1].contains(&written),
        "{written}, {counted}"
    );
    assert_eq!(response["output_open"], false);
    agent.stop().await;
}

#[tokio::test]
async fn escaped_process_with_open_output_is_reported() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let pid = directory.path().join("pid");
    // The process has no parents, its own session and no mark, and it leaves its cgroup.
    let line = format!(
        "setsid -f env -i sh -c '{LEAVE_CGROUP}; \
           echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000'; \
         until [ -e {0} ]; do sleep 0.1; done",
        pid.display()
    );
    let (status, response) = exec(&agent, json!({"command": "sh", "args": ["-c", line]})).await;
    signal(pid_in(&pid).unwrap(), Signal::SIGKILL);
    assert_eq!(status, StatusCode::OK);
    assert_eq!(response["output_open"], true);
    agent.stop().await;
}

#[tokio::test]
async fn timeout_returns_the_output_so_far() {
    let agent = agent().await;
    let line = "trap '' TERM; echo started; sleep 1000";
    let body = json!({"command": "sh", "args": ["-c", line], "timeout_sec": 5});
    let (status, response) = exec(&agent, body).await;
    assert_eq!(status, StatusCode::OK);
    let output = executed(&response);
    assert_eq!(
        (output.stdout.as_str(), output.exit_code),
        ("started\n", 124)
    );
    agent.stop().await;
}

#[tokio::test]
async fn background_processes_end_with_the_program() {
    let agent = agent().await;
    let output = exec_shell(&agent, "sleep 1000 & echo $!; setsid sleep 1000 & echo $!").await;
    let pids: Vec<u32> = output
        .stdout
        .lines()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!((pids.len(), output.exit_code), (2, 0));
    until("both processes to end", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
    until("the process metric to be zero", async || {
        (metric(&agent, "berth_processes").await == 0.0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn disconnect_ends_the_program() {
    let agent = agent().await;
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("pid");
    let line = format!(
        "sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
        file.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line]});
    let request = agent.post("/process/exec").json(&body);
    let client = tokio::spawn(request.send());
    let pid = until("the process to start", async || pid_in(&file)).await;
    assert!(is_alive(pid));
    client.abort();
    until("the process to end", async || {
        (!is_alive(pid)).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn permit_is_free_once_exec_has_responded() {
    let agent = Start::without_browser()
        .with(["--max-processes", "1"])
        .listening()
        .await;
    for line in ["true", "sleep 1000 & setsid sleep 1000 &"].repeat(10) {
        let body = json!({"command": "sh", "args": ["-c", line]});
        let (status, response) = exec(&agent, body).await;
        assert_eq!(status, StatusCode::OK, "{response}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn program_inherits_no_descriptors_and_the_original_limit() {
    let agent = agent().await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let output = exec_shell(&agent, "ulimit -Sn; ulimit -Hn; ls /proc/self/fd").await;
    let limits: Vec<&str> = output.stdout.lines().take(2).collect();
    assert_eq!(limits, [soft.to_string(), hard.to_string()]);
    // Descriptor 3 is the directory that ls reads.
    let open: Vec<&str> = output.stdout.lines().skip(2).collect();
    assert_eq!(open, ["0", "1", "2", "3"]);
    agent.stop().await;
}
