//! An agent whose program was replaced, and which is to continue with the new one.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{
    agent::{PROGRAM, Start, TestAgent},
    dev::Dev,
    fleet_agent::{host_when, join},
    processes,
    resumable::{Lost, Resumable, WorkingScript, attach, close_code, evaluate},
    scripts::{execute, result_of, start_titled},
    spawned::{exec_shell, shell},
    wait::until,
    websocket::Client,
};

const STOPPING: u16 = 1001;

/// A program that can be replaced.
struct Program {
    directory: TempDir,
}

impl Program {
    fn install() -> Self {
        let program = Program {
            directory: tempfile::tempdir().unwrap(),
        };
        let worker = Path::new(PROGRAM).with_file_name("berth-script");
        std::os::unix::fs::symlink(worker, program.directory.path().join("berth-script")).unwrap();
        // Copied where the directory is on another file system.
        if fs::hard_link(PROGRAM, program.path()).is_err() {
            fs::copy(PROGRAM, program.path()).unwrap();
        }
        program
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("berth")
    }

    fn record(&self) -> PathBuf {
        self.directory.path().join("record")
    }

    /// Replaces the file, as a package manager does, by a program that runs this shell script.
    fn replace(&self, script: &str) {
        let new = self.directory.path().join("new");
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    /// Replaces the file by another berth, which records that it was started as an agent.
    fn upgrade(&self) {
        let record = self.record();
        let record = record.display();
        self.replace(&format!(
            "[ \"$1\" != agent ] || echo agent >> {record}\nexec {PROGRAM} \"$@\""
        ));
    }

    /// Returns how often the new program was started as an agent.
    fn starts(&self) -> usize {
        let record = fs::read_to_string(self.record()).unwrap_or_default();
        record.lines().count()
    }
}

/// Has the agent replaced, and waits for the next program.
async fn upgrade(agent: &TestAgent, program: &Program) {
    let starts = program.starts();
    agent.request_restart();
    until("another program", async || {
        (program.starts() > starts).then_some(())
    })
    .await;
    agent.ready().await;
}

async fn clipboard(agent: &TestAgent) -> Value {
    let read = agent.post("/computer/clipboard/read");
    agent.ok(read).await["text"].clone()
}

/// Takes the client's WebSocket, which the agent closes, and resumes its connection.
async fn resume(client: Resumable, agent: &TestAgent) -> Resumable {
    let lost = Lost {
        id: client.id.clone(),
        sent: client.sent,
        received: client.received,
    };
    let sent = client.sent;
    assert_eq!(close_code(client.socket).await, STOPPING);
    lost.resume(agent, sent).await
}

#[tokio::test]
async fn browser_and_resumable_connections_continue_with_another_program() {
    let program = Program::install();
    let start = Start::on_screen().with_program(program.path());
    let agent = start.with_soft_limit_of_open_files(700).ready().await;
    let (pid, chromium) = (agent.pid(), agent.chromium_number("pid").await);
    let display = agent.display_pid().await;
    let mut client = Resumable::connect(&agent).await;
    let session = attach(&mut client).await;
    let write = json!({"text": "kept for the next one"});
    agent
        .ok(agent.post("/computer/clipboard/write").json(&write))
        .await;
    program.upgrade();
    for round in 0..2 {
        // A call that is answered after the upgrade, and one whose events come meanwhile.
        let waiting = "new Promise(resolve => globalThis.finish = resolve)";
        let call = json!({"id": 100 + round, "method": "Runtime.evaluate", "sessionId": session,
            "params": {"expression": waiting, "awaitPromise": true}});
        client.call(call).await;
        client
            .call(evaluate(200 + round, &session, "globalThis.kept ??= 7"))
            .await;
        let kept = client.reply(200 + round).await;
        assert_eq!(kept["result"]["result"]["value"], 7);
        agent.request_restart();
        client = resume(client, &agent).await;
        // The script runs berth itself, which is the program of the second round.
        assert_eq!(program.starts(), 1);
        client
            .call(evaluate(300 + round, &session, "finish(kept + 1)"))
            .await;
        let reply = client.reply(100 + round).await;
        assert_eq!(reply["result"]["result"]["value"], 8, "{reply}");
    }
    assert_eq!(agent.pid(), pid);
    assert_eq!(agent.chromium_number("pid").await, chromium);
    assert_eq!(agent.display_pid().await, display);
    let status = agent.ok(agent.get("/session")).await;
    assert_eq!(status["generation"], 1, "{status}");
    assert_eq!(status["restarting"], false, "{status}");
    let text = until("the clipboard", async || {
        let text = clipboard(&agent).await;
        (text != "").then_some(text)
    });
    assert_eq!(text.await, "kept for the next one");
    assert_eq!(
        result_of(&agent, "return await page.evaluate('kept')").await,
        7
    );
    assert_eq!(exec_shell(&agent, "ulimit -n").await.stdout.trim(), "700");
    let resized = json!({"text": "typed by the next one"});
    agent.ok(agent.post("/computer/type").json(&resized)).await;

    // Its end is noticed, and it is started again.
    processes::signal(u32::try_from(chromium).unwrap(), Signal::SIGKILL);
    assert_eq!(close_code(client.socket).await, 4001);
    agent
        .chromium_when("another Chromium", |status| {
            status["state"] == "running" && status["pid"] != chromium
        })
        .await;
    assert!(!processes::is_alive(u32::try_from(chromium).unwrap()));
    assert_eq!(agent.display_pid().await, display);
    agent.stop().await;
}

/// Waits until the agent reports what it waits for. No other program may have started.
async fn waits_for(agent: &TestAgent, program: &Program, in_use: &str) {
    until(in_use, async || {
        let line = format!("in_use=\"{in_use}\"");
        agent.log().contains(&line).then_some(())
    })
    .await;
    assert_eq!(program.starts(), 0);
}

#[tokio::test]
async fn uses_that_another_program_cannot_continue_are_not_interrupted() {
    let program = Program::install();
    let start = Start::headless().with_program(program.path());
    let agent = start.with(["--executor-idle-seconds", "1"]).ready().await;
    let plain = Client::connect(&agent.ws_url("/cdp")).await;
    // It is not counted instead of the other one.
    let mut resumable = Resumable::connect(&agent).await;
    attach(&mut resumable).await;
    let directory = tempfile::tempdir().unwrap();
    let watch = json!({"path": directory.path(), "recursive": false});
    let watch = agent.ok(agent.post("/fs/watch").json(&watch)).await;
    let executor = json!({"code": "globalThis.kept = 1", "executor": "named"});
    execute(&agent, executor).await;
    let code = "await own.waitForFunction('globalThis.isOver'); return 'complete'";
    let script = start_titled(&agent, "long", code, json!({})).await;
    program.upgrade();
    agent.request_restart();
    waits_for(&agent, &program, "executors of scripts").await;
    waits_for(&agent, &program, "watches").await;
    let id = watch["watch_id"].as_str().unwrap();
    let stopped = agent.request(Method::DELETE, &format!("/fs/watch/{id}"));
    agent.ok(stopped).await;
    waits_for(
        &agent,
        &program,
        "DevTools connections that cannot be resumed",
    )
    .await;
    plain.close().await;
    waits_for(&agent, &program, "requests").await;
    result_of(
        &agent,
        "for (const page of context.pages()) await page.evaluate('globalThis.isOver = true')",
    )
    .await;
    assert_eq!(script.await.unwrap()["result"], "complete");
    until("another program", async || {
        (program.starts() == 1).then_some(())
    })
    .await;
    agent.ready().await;
    agent.stop().await;
}

#[tokio::test]
async fn client_processes_keep_their_agent() {
    let program = Program::install();
    let start = Start::headless().with_program(program.path());
    let agent = start.ready().await;
    let process = shell(&agent, "read line; echo \"$line\"").await;
    program.upgrade();
    agent.request_restart();
    waits_for(&agent, &program, "client processes").await;
    // Its output can still be read.
    process
        .post("stdin", json!({"data_b64": STANDARD.encode("kept\n")}))
        .await;
    assert_eq!(process.output().await.stdout, "kept\n");
    assert_eq!(program.starts(), 0);
    agent.stop().await;
}

/// Needs root.
#[tokio::test]
async fn user_and_directories_of_isolated_programs_remain() {
    let program = Program::install();
    let start = Start::headless().isolated().with_program(program.path());
    let agent = start.ready().await;
    let line = "id -u; readlink /proc/self/ns/mnt; cat /dev/shm/kept /tmp/kept ~/kept";
    let prepare = "for directory in /dev/shm /tmp ~; do echo kept > $directory/kept; done";
    exec_shell(&agent, prepare).await;
    let before = exec_shell(&agent, line).await;
    assert!(before.stdout.ends_with("kept\nkept\nkept\n"), "{before:?}");
    program.upgrade();
    upgrade(&agent, &program).await;
    assert_eq!(exec_shell(&agent, line).await, before);
    agent.stop().await;
}

#[tokio::test]
async fn unusable_program_leaves_the_agent_as_it_is() {
    for (script, reason) in [
        ("exit 1", "is of a version to which"),
        ("echo 0", "is of a version to which"),
        (
            "[ \"$1\" = handover-format ] && exec PROGRAM \"$@\"; echo 'no such option' >&2; exit 1",
            "rejects the options: no such option",
        ),
    ] {
        let program = Program::install();
        let agent = Start::headless().with_program(program.path()).ready().await;
        let mut client = Resumable::connect(&agent).await;
        let session = attach(&mut client).await;
        program.replace(&script.replace("PROGRAM", PROGRAM));
        agent.request_restart();
        until("a rejected program", async || {
            agent.log().contains(reason).then_some(())
        })
        .await;
        client.call(evaluate(9, &session, "1 + 1")).await;
        let reply = client.reply(9).await;
        assert_eq!(reply["result"]["result"]["value"], 2);
        let status = agent.ok(agent.get("/session")).await;
        assert_eq!(status["restarting"], true, "{status}");
        agent.stop().await;
    }
}

/// A host whose program was replaced, with a client through control.
#[tokio::test]
async fn playwright_works_on_while_the_agent_of_its_host_is_replaced() {
    let options = ["--fleet", "registered", "--agents", "0"];
    let dev = Dev::with(&[&options[..], &["--heartbeat-seconds", "1"]].concat()).await;
    let program = Program::install();
    let start = Start::on_screen().with_program(program.path());
    let (agent, host) = join(&dev, start).await;
    let created = dev.post("/browsers", json!({})).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let endpoint = created.body["cdp_ws_url"].as_str().unwrap();

    let script = WorkingScript::start(Command::new("node"), endpoint).await;
    program.upgrade();
    agent.request_restart();
    until("another program", async || {
        (program.starts() == 1).then_some(())
    })
    .await;
    host_when(&dev, "a host with its browser", |found| {
        found["id"] == host["id"] && found["restarting"] == false && found["state"] == "leased"
    })
    .await;
    script.finish().await;
    let log = dev.log();
    assert!(!log.contains("host lost"), "{log}");
    agent.stop().await;
    dev.finish().await;
}
