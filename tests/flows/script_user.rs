//! The user that scripts run as: which other users of the machine reach a script's files and
//! processes. Only an agent that is root changes the user.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::unistd::Uid;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    processes::{self, NOBODY},
    scripts::{idle_counts, result_of, workers},
    wait::{in_time, until},
};

/// Runs a shell script as `nobody`, and returns what it prints.
async fn printed_as_nobody(script: &str, path: &Path) -> String {
    let mut command = processes::command_as_nobody("sh");
    command.args(["-c", script, "sh"]).arg(path);
    let output = in_time("the shell", command.output()).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until all workers are warm and confined, and returns the process id and the user of one.
async fn warm_worker(agent: &TestAgent) -> (u32, u32) {
    idle_counts(agent, 1).await;
    let workers = workers(agent);
    let users = until("confined workers", async || {
        let users: Option<Vec<u32>> = workers.iter().map(|pid| processes::uid(*pid)).collect();
        users.filter(|users| !users.contains(&0))
    })
    .await;
    (workers[0], users[0])
}

fn start() -> Start {
    // Local users can reach the state directory itself.
    Start::headless()
        .with(["--warm-workers", "1"])
        .with_directory_mode(0o755)
}

#[tokio::test]
async fn local_user_reaches_no_file_and_no_process_of_a_script() {
    if !Uid::effective().is_root() {
        return;
    }
    let (first, second) = (start().ready().await, start().ready().await);
    let mut users = Vec::new();
    for agent in [&first, &second] {
        let (worker, user) = warm_worker(agent).await;
        let group = processes::status_field(worker, "Gid");
        let groups = processes::status_field(worker, "Groups");
        assert!(group.split_whitespace().all(|gid| gid == user.to_string()));
        assert_eq!(groups, "");
        let chromium = agent.chromium_number("uid").await;
        assert_ne!(chromium, u64::from(user));
        users.push(user);

        let signal = format!("kill -0 {worker} && echo signalled");
        assert_eq!(printed_as_nobody(&signal, Path::new("/")).await, "");
        let scratch = agent.session_dir().join("scratch");
        let directory = fs::read_dir(&scratch).unwrap().next().unwrap().unwrap();
        assert_eq!(directory.metadata().unwrap().uid(), user);
        // Even a file that all users could read is out of reach.
        let file = directory.path().join("file");
        fs::write(&file, "of the script").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        let attempt = "cat \"$1\"; echo planted > \"$1\"; chmod 777 \"${1%/*}\" && echo changed";
        assert_eq!(printed_as_nobody(attempt, &file).await, "");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of the script");
        fs::remove_file(file).unwrap();
    }
    assert!(users[0] != users[1] && !users.contains(&0), "{users:?}");
    assert!(!users.contains(&NOBODY), "{users:?}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn state_directory_of_an_earlier_build_serves_scripts() {
    let agent = start().ready().await;
    result_of(&agent, "return 1").await;
    let directory = agent.stop_keeping().await;
    let scratch = directory.path().join("state/sessions/1/scratch");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    // As an agent left it that was killed.
    fs::set_permissions(&scratch, Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(scratch.join("1")).unwrap();
    let agent = TestAgent::again(directory)
        .with(["--headless"])
        .ready()
        .await;
    let code = "fs.writeFileSync('file', 'written'); return fs.readFileSync('file', 'utf8')";
    assert_eq!(result_of(&agent, code).await, "written");
    assert_eq!(fs::metadata(&scratch).unwrap().mode() & 0o007, 0);
    agent.stop().await;
}

#[tokio::test]
async fn scripts_run_as_the_named_user_which_must_exist() {
    if !Uid::effective().is_root() {
        return;
    }
    let unknown = Start::headless().with(["--script-user", "no-such-user"]);
    let output = in_time("the exit", unknown.command().output())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--script-user: no user"), "{stderr}");

    let agent = start().with(["--script-user", "nobody"]).ready().await;
    let (_, user) = warm_worker(&agent).await;
    assert_eq!(user, NOBODY);
    assert_eq!(result_of(&agent, "return [1]").await, json!([1]));
    agent.stop().await;
}
