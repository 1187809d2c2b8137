//! Scripts in a worker that is attached to a real Chromium, on each available engine.

use std::{
    fs,
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::Path,
};

use berth::system::script::worker::{MAX_OUTPUT, MAX_RESULT};
use nix::unistd::Uid;

use crate::support::{
    agent::TestAgent,
    processes,
    script_worker::{AttachedWorker, RunResult, agent, engines, request},
    wait::until,
};

/// Runs `test` on each engine.
async fn on_each_engine(test: impl AsyncFn(&TestAgent, &Path)) {
    let agent = agent().await;
    for (_, program) in engines() {
        test(&agent, &program).await;
    }
    agent.stop().await;
}

/// Describes the result of a golden case. Stack traces are compared for the default engine only,
/// because the other one reports columns and internal frames differently.
fn describe_result(result: &RunResult, scratch: &Path, with_stderr: bool) -> String {
    let outcome = result.outcome.as_ref().expect("an answer");
    let mut text = match (&outcome.result, &outcome.error) {
        (_, Some(error)) => format!("error: {error}\n"),
        (Some(result), None) => format!("result: {}\n", result.get()),
        (None, None) => "result: none\n".to_owned(),
    };
    text += &format!("--- stdout\n{}", result.stdout);
    if with_stderr {
        text += &format!("--- stderr\n{}", result.stderr);
    }
    text.replace(&*scratch.to_string_lossy(), "<scratch>")
}

#[tokio::test]
async fn golden_cases_match_their_snapshots() {
    let mut cases: Vec<_> =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flows/scripts"))
            .expect("the directory of cases")
            .map(|entry| entry.expect("an entry").path())
            .collect();
    cases.sort();
    let agent = agent().await;
    for case in cases {
        let name = case
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let code = fs::read_to_string(&case).expect("a readable case");
        let mut descriptions = Vec::new();
        for (engine, program) in engines() {
            let mut worker = AttachedWorker::to(&agent, &program).await;
            let result = worker.run(&code).await;
            let scratch = worker.scratch.path().to_owned();
            if engine == "quickjs" {
                insta::assert_snapshot!(
                    format!("script_{name}"),
                    describe_result(&result, &scratch, true)
                );
            }
            descriptions.push(describe_result(&result, &scratch, false));
            worker.kill().await;
        }
        for other in &descriptions[1..] {
            assert_eq!(
                other, &descriptions[0],
                "{name} differs on the other engine"
            );
        }
    }
    agent.stop().await;
}

#[tokio::test]
async fn endless_script_is_stopped_at_its_timeout_and_reports_its_location() {
    on_each_engine(async |agent, program| {
        let cases = [
            ("while (true) {}", ""),
            ("for (;;) await null;", ""),
            // Several jobs per turn: any of them may run when the engine checks the time.
            (
                "const again = () => { Promise.resolve(1).then(() => 2).then(again); };\nagain();\nawait new Promise(() => {});",
                "",
            ),
            ("/(a+)+b/.test('a'.repeat(40));", ""),
            ("[3, 1, 2].sort(() => { for (;;) {} });", ""),
            ("await new Promise(() => {});", ""),
            (
                "\nawait page.locator('#none').click();",
                "at locator.click (script.ts:2:29)",
            ),
        ];
        for (code, location) in cases {
            let mut worker = AttachedWorker::to(agent, program).await;
            let mut request = request(code);
            request.timeout_ms = 700;
            let result = worker.run_request(request).await;
            assert_eq!(
                result.error(),
                "the script exceeded its timeout of 0.7 s and was stopped",
                "{code}"
            );
            assert!(result.stderr.contains(location), "{code}: {}", result.stderr);
            // The worker is not reusable, and exits by itself.
            assert!(!result.outcome.as_ref().is_some_and(|outcome| outcome.reusable));
            worker.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn memory_bomb_is_reported_as_out_of_memory() {
    on_each_engine(async |agent, program| {
        let bombs = [
            "const all = []; for (;;) all.push({ x: [1, 2, 3], y: 'z' + all.length });",
            "const all = []; for (;;) all.push(new Uint8Array(8 << 20).fill(1));",
            "const all = new Map(); for (let i = 0; ; i++) all.set('key' + i, i);",
            "const f = async () => { const big = new Array(1e5).fill(0); await Promise.all([f(), f()]); return big }; await f();",
        ];
        for code in bombs {
            let mut worker = AttachedWorker::to(agent, program).await;
            let result = worker.run(code).await;
            match &result.outcome {
                Some(_) => assert!(result.error().contains("out of memory"), "{code}: {result:?}"),
                // The process reached its limit before the engine did, or the engine crashed when
                // an allocation failed.
                None => {
                    let exit = worker.end().await;
                    let was_killed = exit.status.is_some_and(|status| status.signal().is_some());
                    assert!(was_killed || exit.is_out_of_memory(), "{code}: {exit:?}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn flood_of_output_is_truncated_with_a_notice() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        let result = worker
            .run("for (let i = 0; i < 10_000; i++) { console.log('x'.repeat(10_000)); console.error('y'.repeat(200)); } return 'done'")
            .await;
        assert_eq!(result.result(), "\"done\"");
        assert!(result.stdout.len() < MAX_OUTPUT + 100);
        assert!(result.stdout.ends_with("[stdout truncated: the limit of 1 MiB is reached]\n"));
        assert!(result.stderr.len() < MAX_OUTPUT + 100);
        assert!(result.stderr.ends_with("[stderr truncated: the limit of 1 MiB is reached]\n"));
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn huge_result_is_truncated_with_a_notice() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        for code in [
            "return '\"'.repeat(20 << 20)",
            "return Array.from({ length: 100_000 }, (_, i) => ({ i, text: 'v'.repeat(200) }))",
            "return Buffer.alloc(9 << 20)",
        ] {
            let result = worker.run(code).await;
            let outcome = result.outcome.as_ref().expect("an answer");
            assert!(outcome.success && outcome.result_truncated, "{code}");
            assert!(
                result.result().starts_with('"') && result.result().len() <= MAX_RESULT,
                "{code}"
            );
            assert!(
                result
                    .stderr
                    .starts_with("[result truncated: its JSON exceeds 8 MiB"),
                "{code}: {}",
                result.stderr
            );
        }
        assert_eq!(worker.run("return 1").await.result(), "1");
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn worker_keeps_its_globals_between_scripts() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        worker
            .run("globalThis.kept = { n: 41, fail() { throw new Error('from before') } }")
            .await;
        assert_eq!(worker.run("kept.n++; return kept.n").await.result(), "42");
        // Each script's stack traces have its name and its line numbers.
        let result = worker.run("\n\nkept.fail()").await;
        assert!(
            result.stderr.contains("script.ts:1:") && result.stderr.contains("script-3.ts:3:"),
            "{}",
            result.stderr
        );
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn requested_tab_becomes_the_page() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        let target = worker
            .run("const s = await context.newCDPSession(page); await page.setContent('<title>this one</title>');
                  return (await s.send('Target.getTargetInfo')).targetInfo.targetId")
            .await
            .result()
            .trim_matches('"')
            .to_owned();
        let mut named = request("return await page.title()");
        named.page_target = Some(target);
        assert_eq!(worker.run_request(named).await.result(), "\"this one\"");
        let mut gone = request("return 1");
        gone.page_target = Some("0".repeat(32));
        gone.timeout_ms = 500;
        assert!(worker.run_request(gone).await.outcome.is_some_and(|outcome| !outcome.success));
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn worker_exits_when_its_agent_closes_the_socket() {
    on_each_engine(async |agent, program| {
        for code in ["while (true) {}", "await new Promise(() => {})"] {
            let mut worker = AttachedWorker::to(agent, program).await;
            let pid = worker.pid();
            worker.start(request(code)).await;
            let reaper = worker.abandon();
            until("the end of the worker", async || {
                (!processes::is_alive(pid)).then_some(())
            })
            .await;
            drop(reaper);
        }
    })
    .await;
}

#[tokio::test]
async fn worker_inherits_no_stray_descriptors() {
    // An inheritable descriptor, as a parent of the agent may leave one.
    let (stray, _other_end) = nix::unistd::pipe().expect("a pipe");
    let descriptors = |process: &str| -> Vec<_> {
        let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("descriptors");
        let link = |entry: std::io::Result<fs::DirEntry>| fs::read_link(entry.ok()?.path()).ok();
        entries.filter_map(link).collect()
    };
    let path = format!("/proc/self/fd/{}", stray.as_raw_fd());
    let stray_link = fs::read_link(path).expect("a pipe");
    on_each_engine(async |agent, program| {
        let worker = AttachedWorker::to(agent, program).await;
        assert!(descriptors("self").contains(&stray_link));
        assert!(!descriptors(&worker.pid().to_string()).contains(&stray_link));
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn worker_has_no_rights() {
    on_each_engine(async |agent, program| {
        let worker = AttachedWorker::to(agent, program).await;
        let pid = worker.pid();
        let field = |name| processes::status_field(pid, name);
        assert_eq!((&*field("Seccomp"), &*field("NoNewPrivs")), ("2", "1"));
        // The template's, and the one that takes away what the setup needed.
        for thread in processes::threads(pid) {
            assert_eq!(processes::status_field(thread, "Seccomp_filters"), "2");
        }
        if Uid::effective().is_root() {
            assert_ne!(processes::uid(pid), Some(0));
            assert_eq!(field("CapEff"), "0000000000000000");
            let root = fs::read_link(format!("/proc/{pid}/root")).unwrap();
            assert_eq!(root, worker.scratch.path());
        }
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn finalizers_run_while_a_script_waits() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        let code = "let finalized = 0; const registry = new FinalizationRegistry(() => finalized++);
            for (let i = 0; i < 1000; i++) registry.register({}, i);
            while (!finalized) { new Array(1e5).fill({}); await new Promise((resolve) => setTimeout(resolve, 1)) }
            return finalized > 0";
        assert_eq!(worker.run(code).await.result(), "true");
        worker.kill().await;
    })
    .await;
}

#[tokio::test]
async fn failed_writes_free_no_space() {
    on_each_engine(async |agent, program| {
        let mut worker = AttachedWorker::to(agent, program).await;
        // The quota is 64 MiB. Each failed write would free the size of the directory.
        let result = worker
            .run(
                "fs.mkdirSync('directory'); const mib = Buffer.alloc(1 << 20); let failed = 0, stored = 0;
                for (let n = 0; n < 20000; n++) { try { fs.writeFileSync('directory', '') } catch { failed++ } }
                try { for (; stored < 100; stored++) fs.writeFileSync(`file${stored}`, mib) } catch {}
                return [failed, stored]",
            )
            .await;
        assert_eq!(result.result(), "[20000,64]");
        worker.kill().await;
    })
    .await;
}
