//! Script workers are forks of a template: nothing of one reaches another, and the template may
//! end.

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Instant};

use berth::system::script::template::ForkRequest;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    agent::Start,
    processes,
    script_worker::{AttachedWorker, agent, bundle, engines, template},
    scripts::{result_of, workers},
    wait::until,
};

/// The objects that scripts share with Playwright and with the engine.
const OBJECTS: &str = "const objects = { globalThis, prototype: Object.prototype, array: Array.prototype, Promise, Math, JSON,
    console, process, env: process.env, fs, Buffer, crypto, performance, timers: setTimeout,
    playwright, chromium: playwright.chromium, browserClass: browser.constructor, pageClass: page.constructor.prototype };";
const PLANT: &str = "for (const object of Object.values(objects))
        Object.defineProperty(object, 'planted', { value: 'a secret', configurable: true });
    fs.writeFileSync('planted', 'a secret');";
/// Returns the names of the objects and files that contain something planted.
const LOOK: &str = "const found = Object.entries(objects).filter(([, object]) => Object.hasOwn(object, 'planted'));
    return found.map(([name]) => name).concat(fs.readdirSync('.').filter((name) => name === 'planted'));";
const UNIQUE: &str = "return [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(16))].join()]";

/// Returns the template processes among the children of a process.
fn templates_of(parent: u32) -> Vec<u32> {
    let children = processes::children(parent).into_iter();
    children
        .filter(|child| processes::status_field(*child, "Name") == "berth-script")
        .collect()
}

async fn returned(worker: &mut AttachedWorker, code: &str) -> Value {
    let code = format!("{OBJECTS}\n{code}");
    serde_json::from_str(worker.run(&code).await.result()).expect("JSON")
}

/// Returns the open sockets and pipes of a process.
fn connections(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    entries
        .filter_map(|entry| {
            let target = fs::read_link(entry.ok()?.path()).ok()?;
            Some(target.to_string_lossy().into_owned())
        })
        .filter(|target| target.starts_with("socket:") || target.starts_with("pipe:"))
        .collect()
}

#[tokio::test]
async fn nothing_of_one_fork_is_in_the_next() {
    let agent = agent().await;
    for (engine, program) in engines() {
        let template = template(&program);
        let mut planted = AttachedWorker::forked_from(&template, &agent).await;
        returned(&mut planted, &format!("{PLANT} return 0")).await;
        let found = returned(&mut planted, LOOK).await;
        assert!(
            found.as_array().is_some_and(|found| found.len() == 19),
            "{engine}: {found}"
        );

        // One beside it, and one after its end.
        let mut beside = AttachedWorker::forked_from(&template, &agent).await;
        assert_eq!(returned(&mut beside, LOOK).await, json!([]), "{engine}");
        planted.kill().await;
        let mut after = AttachedWorker::forked_from(&template, &agent).await;
        assert_eq!(returned(&mut after, LOOK).await, json!([]), "{engine}");
        for worker in [beside, after] {
            worker.kill().await;
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn forks_have_their_own_random_numbers_clocks_and_connections() {
    let agent = agent().await;
    for (engine, program) in engines() {
        let template = template(&program);
        let mut forks = Vec::new();
        let mut numbers = BTreeSet::new();
        for _ in 0..3 {
            let forked_at = Instant::now();
            let earlier = chrono::Utc::now().timestamp_millis();
            let mut worker = AttachedWorker::forked_from(&template, &agent).await;
            for number in returned(&mut worker, UNIQUE)
                .await
                .as_array()
                .expect("a list")
            {
                assert!(
                    numbers.insert(number.to_string()),
                    "{engine}: {number} twice"
                );
            }
            let clocks =
                "return [performance.timeOrigin, performance.now() / 1000, process.uptime()]";
            let clocks = returned(&mut worker, clocks).await;
            let [origin, now, uptime] = [0, 1, 2].map(|at| clocks[at].as_f64().expect("a number"));
            assert!(
                origin >= earlier as f64,
                "{engine}: {origin} is before {earlier}"
            );
            let age = forked_at.elapsed().as_secs_f64();
            assert!(
                now <= uptime && uptime <= age,
                "{engine}: {clocks} in {age} s"
            );
            forks.push(worker);
        }
        let mut owners: Vec<u32> = forks.iter().map(AttachedWorker::pid).collect();
        owners.extend(templates_of(std::process::id()));
        assert_eq!(owners.len(), 4);
        let all: Vec<_> = owners.into_iter().map(connections).collect();
        for (index, one) in all.iter().enumerate() {
            assert!(!one.is_empty());
            for other in &all[index + 1..] {
                assert_eq!(one.intersection(other).count(), 0, "{engine}: {all:?}");
            }
        }
        for worker in forks {
            worker.kill().await;
        }
        template.stop().await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn killed_template_is_replaced_and_its_workers_keep_running() {
    let agent = agent().await;
    for (_, program) in engines() {
        let template = template(&program);
        let mut first = AttachedWorker::forked_from(&template, &agent).await;
        let killed = templates_of(std::process::id());
        assert_eq!(killed.len(), 1);
        processes::signal(killed[0], Signal::SIGKILL);
        until("the end of the template", async || {
            (!processes::is_alive(killed[0])).then_some(())
        })
        .await;
        let mut second = AttachedWorker::forked_from(&template, &agent).await;
        template.stop().await;
        assert_eq!(templates_of(std::process::id()), Vec::<u32>::new());
        for worker in [&mut first, &mut second] {
            assert_eq!(worker.run("return 1").await.result(), "1");
        }
        for worker in [first, second] {
            worker.kill().await;
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn agent_whose_template_is_killed_runs_every_script() {
    let agent = Start::headless()
        .with(["--warm-workers", "1"])
        .ready()
        .await;
    assert_eq!(result_of(&agent, "return 1").await, 1);
    let killed = templates_of(agent.pid());
    assert_eq!(killed.len(), 1);
    processes::signal(killed[0], Signal::SIGKILL);
    for n in 0..4 {
        assert_eq!(result_of(&agent, &format!("return {n}")).await, n);
    }
    let replaced = templates_of(agent.pid());
    assert!(replaced.len() == 1 && replaced != killed, "{replaced:?}");
    let alive = workers(&agent);
    agent.kill().await;
    until("the end of the template and the workers", async || {
        let mut all = replaced.iter().chain(&alive);
        (!all.any(|pid| processes::is_alive(*pid))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn program_without_its_snapshot_is_an_error_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("berth-script");
    let error = template(&program)
        .fork(request())
        .await
        .expect_err("no program");
    assert!(error.to_string().contains("No such file"), "{error}");
    for (_, complete) in engines() {
        copy(&complete, &program);
        let error = template(&program)
            .fork(request())
            .await
            .expect_err("no snapshot");
        assert!(error.to_string().contains("no snapshot at"), "{error}");
    }
}

/// A cache would be in a directory that others can write to.
#[test]
fn no_compiled_script_is_cached() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    for (_, program) in engines() {
        let made = Command::new(&program)
            .arg("snapshot")
            .args([&bundle(), &directory.path().join("snapshot")])
            .env("XDG_CACHE_HOME", &cache)
            .status()
            .unwrap();
        assert!(made.success());
        assert!(!cache.exists());
    }
}

fn request() -> ForkRequest {
    ForkRequest {
        scratch: "1".to_owned(),
        attaches: false,
    }
}

/// Copies a program by a hard link where possible, since it is large.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_file(to);
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}
