use std::fs;

use nix::sys::{
    resource::{Resource, getrlimit},
    signal::Signal,
};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    processes::{is_alive, signal},
    scripts::metric,
    spawned::{Output, exec, exec_shell, executed},
    wait::until,
};

async fn agent() -> TestAgent {
    Start::without_browser().listening().await
}

fn number_in(file: &std::path::Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[tokio::test]
async fn a_program_is_run_to_its_end() {
    let agent = agent().await;
    let output = exec_shell(&agent, "echo out; echo err >&2; cat; exit 3").await;
    let wanted = Output {
        stdout: "out\n".into(),
        stderr: "err\n".into(),
        exit_code: 3,
    };
    assert_eq!(output, wanted, "it has nothing to read");
    assert_eq!(exec_shell(&agent, "kill -9 $$").await.exit_code, 137);
    let (_, answer) = exec(&agent, json!({"command": "true"})).await;
    assert!(answer["duration_ms"].is_u64(), "{answer}");
    for field in ["stdout_truncated", "stderr_truncated"] {
        assert_eq!(answer[field], false);
    }
    let (status, answer) = exec(&agent, json!({"command": "no-such-program"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["details"][0]["code"], "command");
    agent.stop().await;
}

#[tokio::test]
async fn too_much_output_is_cut_and_it_is_said() {
    let agent = Start::without_browser()
        .with(["--exec-output-mb", "1"])
        .listening()
        .await;
    let line = "head -c 1048576 /dev/zero; (echo begin; head -c 20000000 /dev/zero) >&2";
    let body = json!({"command": "sh", "args": ["-c", line]});
    let (_, answer) = exec(&agent, body).await;
    assert_eq!(answer["stdout_truncated"], false);
    assert_eq!(answer["stderr_truncated"], true);
    let output = executed(&answer);
    assert_eq!(output.stdout.len(), 1 << 20);
    assert_eq!(output.stderr.len(), 1 << 20);
    assert!(output.stderr.starts_with("begin\n"));
    assert_eq!(output.exit_code, 0);
    agent.stop().await;
}

#[tokio::test]
async fn all_together_keep_no_more_than_their_budget() {
    let agent = Start::without_browser()
        .with(["--exec-output-mb", "1", "--exec-total-mb", "1"])
        .listening()
        .await;
    let folder = tempfile::TempDir::new().unwrap();
    let (written, go) = (folder.path().join("written"), folder.path().join("go"));
    let line = format!(
        "head -c 1048576 /dev/zero; touch {}; until [ -e {} ]; do sleep 0.1; done",
        written.display(),
        go.display()
    );
    let a_megabyte = json!({"command": "head", "args": ["-c", "1048576", "/dev/zero"]});
    let first = async {
        let body = json!({"command": "sh", "args": ["-c", line]});
        exec(&agent, body).await
    };
    let second = async {
        until("the first's output", async || {
            written.exists().then_some(())
        })
        .await;
        // All is taken but what a pipe holds, and what is read of it at this moment.
        let (status, answer) = exec(&agent, a_megabyte.clone()).await;
        fs::write(&go, "").unwrap();
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answer["stdout_truncated"], true);
        let output = executed(&answer);
        assert_eq!(output.exit_code, 0);
        assert!(output.stdout.len() <= 512 << 10, "{}", output.stdout.len());
    };
    tokio::join!(first, second);
    until("all of it given back", async || {
        let (_, answer) = exec(&agent, a_megabyte.clone()).await;
        (answer["stdout_truncated"] == false).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn what_others_write_until_they_are_ended_is_in_the_answer() {
    let agent = agent().await;
    let folder = tempfile::TempDir::new().unwrap();
    let count = folder.path().join("count");
    // Each line is counted once it is written.
    let line = format!(
        "(while :; do echo x; echo x >> {0}; done) & until [ -e {0} ]; do sleep 0.1; done; exit 5",
        count.display()
    );
    let (_, answer) = exec(&agent, json!({"command": "sh", "args": ["-c", line]})).await;
    let output = executed(&answer);
    assert_eq!(output.exit_code, 5);
    let written = output.stdout.lines().count();
    let counted = fs::read_to_string(&count).unwrap().lines().count();
    assert!(
        [counted, counted + 1].contains(&written),
        "{written}, {counted}"
    );
    assert_eq!(answer["output_open"], false);
    agent.stop().await;
}

#[tokio::test]
async fn one_that_gets_away_with_the_output_is_told() {
    let agent = agent().await;
    let folder = tempfile::TempDir::new().unwrap();
    let pid = folder.path().join("pid");
    // Without parents, in a session of its own, and without a mark.
    let line = format!(
        "setsid -f env -i sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000'; \
         until [ -e {0} ]; do sleep 0.1; done",
        pid.display()
    );
    let (status, answer) = exec(&agent, json!({"command": "sh", "args": ["-c", line]})).await;
    signal(number_in(&pid).unwrap(), Signal::SIGKILL);
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["output_open"], true);
    agent.stop().await;
}

#[tokio::test]
async fn time_that_is_over_leaves_the_output_so_far() {
    let agent = agent().await;
    let line = "trap '' TERM; echo begun; sleep 1000";
    let body = json!({"command": "sh", "args": ["-c", line], "timeout_sec": 5});
    let (status, answer) = exec(&agent, body).await;
    assert_eq!(status, StatusCode::OK);
    let output = executed(&answer);
    assert_eq!((output.stdout.as_str(), output.exit_code), ("begun\n", 124));
    agent.stop().await;
}

#[tokio::test]
async fn what_it_has_started_ends_with_it() {
    let agent = agent().await;
    let output = exec_shell(&agent, "sleep 1000 & echo $!; setsid sleep 1000 & echo $!").await;
    let pids: Vec<u32> = output
        .stdout
        .lines()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!((pids.len(), output.exit_code), (2, 0));
    until("the end of both", async || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
    until("no process counted", async || {
        (metric(&agent, "berth_processes").await == 0.0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_ends_it() {
    let agent = agent().await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("pid");
    let line = format!(
        "sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
        file.display()
    );
    let body = json!({"command": "sh", "args": ["-c", line]});
    let request = agent.post("/process/exec").json(&body);
    let client = tokio::spawn(request.send());
    let pid = until("its process", async || number_in(&file)).await;
    assert!(is_alive(pid));
    client.abort();
    until("its end", async || (!is_alive(pid)).then_some(())).await;
    agent.stop().await;
}

#[tokio::test]
async fn one_after_the_other_takes_one_place() {
    let agent = Start::without_browser()
        .with(["--max-processes", "1"])
        .listening()
        .await;
    for line in ["true", "sleep 1000 & setsid sleep 1000 &"].repeat(10) {
        let body = json!({"command": "sh", "args": ["-c", line]});
        let (status, answer) = exec(&agent, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_program_has_no_more_open_files_than_its_own() {
    let agent = agent().await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let output = exec_shell(&agent, "ulimit -Sn; ulimit -Hn; ls /proc/self/fd").await;
    let limits: Vec<&str> = output.stdout.lines().take(2).collect();
    assert_eq!(limits, [soft.to_string(), hard.to_string()]);
    // The last is of the folder itself.
    let open: Vec<&str> = output.stdout.lines().skip(2).collect();
    assert_eq!(open, ["0", "1", "2", "3"]);
    agent.stop().await;
}
