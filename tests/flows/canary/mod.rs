//! Data that a session leaves in every place it can reach, which the next session must not find.
//!
//! Each place has a way to plant a canary and one to look for it. The first session plants all and
//! finds all, so that the next one would find what is left.

mod places;
mod visit;

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, Uid},
};
use reqwest::StatusCode;
use serde_json::{Value, json};

use self::{
    places::{
        AGENT, BROWSER, DOWNLOADS, EXTENSION, FILES, INPUT, PAGE, PRIVATE, PROCESS, Place, SHARED,
    },
    visit::{Fixture, Visit},
};
use crate::support::{
    agent::{Start, TestAgent},
    wait::until,
};

/// Returns all places that the agent of this user has, in the order in which they are filled.
fn places() -> impl Iterator<Item = &'static Place> {
    let shared = if Uid::effective().is_root() {
        SHARED
    } else {
        &[]
    };
    [INPUT, PAGE, BROWSER, AGENT, FILES, shared]
        .into_iter()
        .flatten()
}

async fn end(agent: &TestAgent) -> Value {
    let request = agent.post("/session/end").json(&json!({"generation": 1}));
    let (status, receipt) = agent.answer(request).await;
    assert_eq!(status, StatusCode::OK, "{receipt}\n{}", agent.log());
    receipt
}

/// Plants the canaries of all places and waits until each is found.
async fn plant(visit: &mut Visit<'_>, places: &[&'static Place]) {
    for place in places {
        visit.plant(place).await;
    }
    visit.assert_planted(places).await;
}

async fn wait_for_spare(visit: &Visit<'_>) {
    until("a spare session", async || {
        (visit.get("/session").await["spare"] == "ready").then_some(())
    })
    .await;
}

#[tokio::test]
async fn next_session_finds_nothing_of_the_one_before() {
    let fixture = Fixture::new().await;
    let agent = fixture.configure(Start::on_screen()).ready().await;
    // A program would taint the session.
    let places: Vec<_> = places().filter(|place| place.name != PROCESS).collect();
    let mut first = Visit::start(&agent, &fixture, 1).await;
    plant(&mut first, &places).await;
    let receipt = end(&agent).await;
    assert_eq!(receipt["clean"], true, "{receipt}");
    assert_eq!(receipt["replays"].as_array().unwrap().len(), 1);
    let mut second = Visit::start(&agent, &fixture, 2).await;
    let found = second.found(&places).await;
    assert_eq!(found, [""; 0]);
    agent.stop().await;
}

#[tokio::test]
async fn spare_session_finds_nothing_of_the_one_before() {
    let fixture = Fixture::new().await;
    let agent = fixture.configure(Start::on_screen().with(["--spare"]));
    let agent = agent.ready().await;
    let places: Vec<_> = places().collect();
    let mut first = Visit::start(&agent, &fixture, 1).await;
    plant(&mut first, &places).await;
    wait_for_spare(&first).await;
    let receipt = end(&agent).await;
    assert_eq!(receipt["remaining"], json!([]), "{receipt}");
    assert_eq!(receipt["tainted_by"], json!(["program"]), "{receipt}");
    let mut second = Visit::start(&agent, &fixture, 2).await;
    let found = second.found(&places).await;
    assert_eq!(found, [""; 0]);
    agent.stop().await;
}

#[tokio::test]
async fn session_after_one_with_isolated_processes_finds_nothing() {
    if !Uid::effective().is_root() {
        return;
    }
    let fixture = Fixture::new().await;
    let start = Start::on_screen().isolated().with(["--spare"]);
    let agent = fixture.configure(start).ready().await;
    // The browser does not see the `/tmp` of the machine, where the extension is. Files that
    // clients change in directories that the agent trusts would taint the session.
    let downloads = FILES.iter().filter(|place| place.name == DOWNLOADS);
    let places = [INPUT, PAGE, BROWSER, AGENT, PRIVATE].into_iter().flatten();
    let places = places.chain(downloads);
    let places: Vec<_> = places.filter(|place| place.name != EXTENSION).collect();
    let mut first = Visit::start(&agent, &fixture, 1).await;
    plant(&mut first, &places).await;
    wait_for_spare(&first).await;
    let receipt = end(&agent).await;
    assert_eq!(receipt["clean"], true, "{receipt}");
    let mut second = Visit::start(&agent, &fixture, 2).await;
    let found = second.found(&places).await;
    assert_eq!(found, [""; 0]);
    agent.stop().await;
}

#[tokio::test]
async fn file_that_cannot_be_removed_is_found_and_named_in_the_receipt() {
    if !Uid::effective().is_root() {
        // Only root can mount a file system.
        return;
    }
    let fixture = Fixture::new().await;
    let agent = fixture.configure(Start::headless()).ready().await;
    let places: Vec<_> = FILES.iter().collect();
    let mut first = Visit::start(&agent, &fixture, 1).await;
    // A mount point stays, and so does what is mounted there.
    let mount = Mount::at(&first.directory("work"));
    plant(&mut first, &places).await;
    let receipt = end(&agent).await;
    let file = first.directory("work").join("canary-file");
    let remaining = json!([{"kind": "file", "name": file}]);
    assert_eq!(receipt["remaining"], remaining, "{receipt}");
    assert_eq!(receipt["clean"], false);
    let mut second = Visit::start(&agent, &fixture, 2).await;
    let found = second.found(&places).await;
    assert_eq!(found, ["file in work"]);
    // The directory of the agent is removed with it.
    drop(mount);
    agent.stop().await;
}

#[tokio::test]
async fn process_that_cannot_be_ended_is_found_and_named_in_the_receipt() {
    if !Uid::effective().is_root() {
        // Only root can start a process of another user.
        return;
    }
    let fixture = Fixture::new().await;
    let agent = fixture.configure(Start::headless()).ready().await;
    let places: Vec<_> = AGENT.iter().filter(|place| place.name == PROCESS).collect();
    let mut first = Visit::start(&agent, &fixture, 1).await;
    let uid = first.get("/chromium").await["uid"].as_u64().unwrap();
    let _restarted = Restarted::start(uid, &fixture.marker);
    first.assert_planted(&places).await;
    let receipt = end(&agent).await;
    let remaining = receipt["remaining"].as_array().unwrap();
    assert!(!remaining.is_empty(), "{receipt}");
    assert!(
        remaining.iter().all(|it| it["kind"] == "process"),
        "{receipt}"
    );
    assert_eq!(receipt["clean"], false);
    let mut second = Visit::start(&agent, &fixture, 2).await;
    let found = second.found(&places).await;
    assert_eq!(found, [PROCESS]);
    agent.stop().await;
}

/// A file system in memory, until it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn at(directory: &Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(directory);
        assert!(mount.status().unwrap().success());
        Self(directory.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.unwrap().success());
    }
}

/// Processes of a user that are started again when they are killed, until this is dropped.
struct Restarted(Vec<Child>);

impl Restarted {
    /// The number of processes, of which at least one runs at any time.
    const COUNT: usize = 4;

    fn start(uid: u64, marker: &str) -> Self {
        let user = format!("--reuid={uid} --regid={uid} --clear-groups");
        let line = format!("while :; do setpriv {user} env NAME=$NAME$REST sleep 1000; done");
        // The loops themselves are not marked.
        let (name, rest) = marker.split_at(3);
        let start = |_| {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &line])
                .env("NAME", name)
                .env("REST", rest);
            shell.process_group(0).spawn().unwrap()
        };
        Self((0..Self::COUNT).map(start).collect())
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        for shell in &mut self.0 {
            killpg(Pid::from_raw(shell.id().cast_signed()), Signal::SIGKILL).unwrap();
            shell.wait().unwrap();
        }
    }
}
