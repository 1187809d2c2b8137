//! Chromium's user and its sandbox: what a page can read, and what the system must permit.
//!
//! An agent that is not root runs Chromium as its own user, so that most of these tests need root.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, chown};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    dev::Dev,
    page::Page,
    processes,
    scripts::result_of,
    wait::{in_time, until},
};

fn is_root() -> bool {
    Uid::effective().is_root()
}

async fn chromium(agent: &TestAgent) -> Value {
    let health = agent.ok(agent.get("/health")).await;
    health["chromium"].clone()
}

/// Creates a directory that all users can read.
fn public_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Opens a file in the browser, and returns its text, or the error.
async fn open(agent: &TestAgent, path: &Path) -> String {
    let code = format!(
        "try {{ await page.goto('file://{}') }} catch (error) {{ return String(error) }}
         return await page.innerText('body')",
        path.display()
    );
    let result = result_of(agent, &code).await;
    result.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn chromium_has_its_sandbox_and_a_user_of_its_own() {
    let [first, second] = [Start::headless(), Start::on_screen()].map(Start::ready);
    let (first, second) = (first.await, second.await);
    let mut uids = Vec::new();
    for agent in [&first, &second] {
        result_of(agent, "await page.goto('data:text/html,x'); return 1").await;
        let status = chromium(agent).await;
        assert_eq!(status["sandbox"], "namespaces", "{status}");
        assert!(status["sandbox_reason"].is_null(), "{status}");
        let uid = u32::try_from(status["uid"].as_u64().unwrap()).unwrap();
        let mut renderers = 0;
        let group = u32::try_from(status["pid"].as_u64().unwrap()).unwrap();
        for process in processes::in_group(group) {
            assert_eq!(processes::uid(process.pid), Some(uid), "{process:?}");
            if process.command.contains("--type=renderer") {
                let field = |name| processes::status_field(process.pid, name);
                assert_eq!((&*field("Seccomp"), &*field("NoNewPrivs")), ("2", "1"));
                let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
                assert_ne!(namespace(&process.pid.to_string()), namespace("self"));
                renderers += 1;
            }
        }
        assert_ne!(renderers, 0);
        uids.push(uid);
    }
    first.stop().await;
    second.stop().await;
    if is_root() {
        assert!(uids[0] != uids[1] && !uids.contains(&0), "{uids:?}");
        for uid in uids {
            until("no process of the user", async || {
                processes::of_user(uid).is_empty().then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn page_reads_no_private_file_of_the_agent_or_of_another_browser() {
    if !is_root() {
        return;
    }
    let public = public_directory();
    let readable = public.path().join("readable.txt");
    fs::write(&readable, "everyone may read this").unwrap();
    let key = public.path().join("key.txt");
    fs::write(&key, "only root may read this").unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let other = Start::headless().ready().await;
    // Chromium cannot enter a directory of the first mode, and sees only the state directory in it.
    for mode in [0o700, 0o711] {
        let agent = Start::headless().with_directory_mode(mode).ready().await;
        let state = agent.state_dir();
        assert!(open(&agent, &readable).await.contains("everyone"));
        // A control: Chromium's own file, in the same state directory.
        let own = open(&agent, &agent.session_dir().join("user-data/Local State")).await;
        assert!(own.contains("browser"), "{own}");
        let private = [
            key.clone(),
            state.join("run/lock"),
            other.session_dir().join("user-data/Local State"),
            PathBuf::from(format!("/proc/{}/environ", agent.pid())),
        ];
        let log = state.parent().unwrap().join("agent.log");
        for path in private.iter().chain((mode == 0o700).then_some(&log)) {
            assert!(path.exists(), "{}", path.display());
            let text = open(&agent, path).await;
            assert!(text.contains("ERR_"), "{}: {text}", path.display());
        }
        let listing = open(&agent, &agent.session_dir().join("run")).await;
        assert!(!listing.contains("drafts"), "{listing}");
        agent.stop().await;
    }
    other.stop().await;
}

#[tokio::test]
async fn page_of_a_browser_of_control_reads_no_secret() {
    if !is_root() {
        return;
    }
    let dev = Dev::start().await;
    let browser = dev.browser(json!({})).await;
    let id = browser["session_id"].as_str().unwrap();
    let directory = dev.host_dir(id);
    let secrets = ["dev-key", "session-secret", "berth.db"].map(|name| dev.state_dir().join(name));
    for path in secrets.into_iter().chain([directory.join("token")]) {
        assert!(path.is_file(), "{}", path.display());
        let code = format!(
            "try {{ await page.goto('file://{}') }} catch (error) {{ return String(error) }}
             return await page.innerText('body')",
            path.display()
        );
        let execute = format!("/browsers/{id}/automation/execute");
        let answer = dev.post(&execute, json!({"code": code})).await;
        let text = answer.body["result"].as_str().unwrap();
        assert!(text.contains("ERR_"), "{}: {text}", path.display());
    }
    dev.finish().await;
}

#[tokio::test]
async fn agent_without_user_namespaces_reports_it_or_refuses_to_start() {
    if !is_root() {
        return;
    }
    let agent = Start::headless().without_user_namespaces().ready().await;
    let status = chromium(&agent).await;
    assert_eq!(status["sandbox"], "off", "{status}");
    let reason = status["sandbox_reason"].as_str().unwrap();
    assert!(reason.contains("user namespaces"), "{reason}");
    assert!(
        agent.log().contains("Chromium runs without its sandbox"),
        "{}",
        agent.log()
    );
    // The user is still one of its own.
    assert_ne!(status["uid"], 0);
    agent.stop().await;

    let required = Start::headless()
        .without_user_namespaces()
        .with(["--chromium-sandbox", "required"]);
    let output = in_time("the exit", required.command().output())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("--chromium-sandbox: Chromium's sandbox is required, but"),
        "{stderr}"
    );
}

#[tokio::test]
async fn required_sandbox_and_chromium_as_root_contradict_each_other() {
    if !is_root() {
        return;
    }
    let start = Start::headless().with(["--chromium-user", "root", "--chromium-sandbox=required"]);
    let output = in_time("the exit", start.command().output()).await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("Chromium has no sandbox for root"),
        "{stderr}"
    );
}

#[tokio::test]
async fn profile_of_an_earlier_build_is_given_to_chromium_and_the_user_is_kept() {
    if !is_root() {
        return;
    }
    let agent = Start::headless()
        .with(["--chromium-user", "root"])
        .ready()
        .await;
    let status = chromium(&agent).await;
    assert_eq!(
        (&status["uid"], &status["sandbox"]),
        (&json!(0), &json!("off"))
    );
    let local_state = agent.session_dir().join("user-data/Local State");
    until("the profile", async || local_state.is_file().then_some(())).await;
    let mut directory = agent.stop_keeping().await;
    let mut users = Vec::new();
    for _ in 0..2 {
        let agent = TestAgent::again(directory).ready().await;
        let uid = chromium(&agent).await["uid"].as_u64().unwrap();
        assert_eq!(u64::from(fs::metadata(&local_state).unwrap().uid()), uid);
        users.push(uid);
        directory = agent.stop_keeping().await;
    }
    assert!(users[0] == users[1] && users[0] != 0, "{users:?}");
}

#[tokio::test]
async fn named_user_must_exist_and_reach_chromium() {
    if !is_root() {
        return;
    }
    let refused = async |start: Start| {
        let output = in_time("the exit", start.command().output()).await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let unknown = refused(Start::headless().with(["--chromium-user", "no-such-user"])).await;
    assert!(unknown.contains("--chromium-user: no user"), "{unknown}");
    let directory = public_directory();
    let program = directory.path().join("chromium");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let program = program.to_str().unwrap();
    let start = Start::headless().with(["--chromium-user", "nobody", "--chromium", program]);
    let closed = refused(start).await;
    assert!(closed.contains("cannot execute"), "{closed}");

    let agent = Start::headless()
        .with(["--chromium-user", "nobody"])
        .ready()
        .await;
    assert_eq!(chromium(&agent).await["uid"], 65_534);
    agent.stop().await;
}

#[tokio::test]
async fn page_receives_a_file_that_a_client_has_written() {
    let agent = Start::headless().ready().await;
    let directory = public_directory();
    let path = directory.path().join("new/upload.txt");
    let create = agent
        .put("/fs/create_directory")
        .json(&json!({"path": path.parent().unwrap()}));
    agent.ok(create).await;
    let write = agent.put(&format!("/fs/write_file?path={}", path.display()));
    let (status, body) = agent.answer(write.body("written by a client")).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let mut page = Page::of(&agent).await;
    page.show("<input type=file>").await;
    let document = page.call("DOM.getDocument", json!({})).await;
    let root = &document["root"]["nodeId"];
    let found = page
        .call(
            "DOM.querySelector",
            json!({"nodeId": root, "selector": "input"}),
        )
        .await;
    let mut read = async |path: &Path| {
        let files = json!({"nodeId": found["nodeId"], "files": [path]});
        page.call("DOM.setFileInputFiles", files).await;
        let text = "document.querySelector('input').files[0].text().catch(error => error.name)";
        page.evaluate(text).await
    };
    assert_eq!(read(&path).await, "written by a client");
    if is_root() {
        let private = directory.path().join("private.txt");
        fs::write(&private, "private").unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&private).await, "NotReadableError");
        let uid = u32::try_from(chromium(&agent).await["uid"].as_u64().unwrap()).unwrap();
        chown(&private, Some(Uid::from_raw(uid)), None::<Gid>).unwrap();
        assert_eq!(read(&private).await, "private");
    }
    agent.stop().await;
}
