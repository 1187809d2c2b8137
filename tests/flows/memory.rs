//! The agent's memory after a load: what it held for the requests is returned to the system.

use std::{fs, path::Path};

use futures::future::join_all;
use reqwest::{
    Method, StatusCode,
    multipart::{Form, Part},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    files::noise,
    live::Viewer,
    page::Page,
    painter::screenshot,
    processes::anonymous_kib,
    recorder::{action, run_batch},
    scripts::idle_counts,
    spawned::{exec_shell, shell},
    wait::{in_time, until},
};

/// The memory that an agent may hold after a load beyond the memory before it.
const MAX_GROWTH_KIB: u64 = 10 << 10;
const ROUNDS: usize = 2;
const FILE_BYTES: usize = 16 << 20;
/// The size of the directory tree that is archived.
const TREE_BYTES: usize = 16 << 20;
const WARM_WORKERS: usize = 2;

const ANIMATED_PAGE: &str = "<!doctype html><body style='margin:0'><script>let hue = 0; \
    const draw = () => { document.body.style.background = `linear-gradient(${hue++}deg, red, lime, blue)`; \
    requestAnimationFrame(draw) }; draw()</script><div style='height:100vh'>";

#[tokio::test]
async fn memory_of_a_mixed_load_is_returned() {
    let mut agent = Start::on_screen().logging("info").ready().await;
    // Each request has a connection of its own. The server may close an idle one in the moment when
    // it would be used again.
    let client = reqwest::Client::builder().pool_max_idle_per_host(0);
    agent.http = client.build().unwrap();
    let mut page = Page::of(&agent).await;
    page.show(ANIMATED_PAGE).await;
    page.ready().await;
    idle_counts(&agent, WARM_WORKERS).await;
    let before = anonymous_kib(agent.pid());

    let directory = TempDir::new().unwrap();
    for _ in 0..ROUNDS {
        tokio::join!(
            files(&agent, directory.path()),
            archives(&agent, directory.path()),
            processes(&agent),
            screen_and_input(&agent),
            scripts(&agent),
        );
    }
    println!(
        "{before} KiB before the load, {} after it",
        anonymous_kib(agent.pid())
    );
    let returned = until("the memory to be returned", async || {
        let now = anonymous_kib(agent.pid());
        (now <= before + MAX_GROWTH_KIB).then_some(now)
    })
    .await;
    println!("{returned} KiB after some time");
    agent.stop().await;
}

/// Sends a request and reads the response, which must be a success.
async fn body_of(request: reqwest::RequestBuilder) -> Vec<u8> {
    let response = in_time("a response", request.send()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    in_time("a body", response.bytes()).await.unwrap().into()
}

fn path_of(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

/// Writes, uploads and reads large files.
async fn files(agent: &TestAgent, directory: &Path) {
    let content = noise(FILE_BYTES);
    let transfer = async |name: &str| {
        let path = path_of(directory, name);
        let write = agent.put(&format!("/fs/write_file?path={path}"));
        agent.ok(write.body(content.clone())).await;
        let read = body_of(agent.get(&format!("/fs/read_file?path={path}"))).await;
        assert_eq!(read.len(), FILE_BYTES);
        let form = Form::new()
            .part("files.0.file", Part::bytes(content.clone()))
            .text("files.0.dest_path", path);
        agent.ok(agent.post("/fs/upload").multipart(form)).await;
    };
    tokio::join!(transfer("one"), transfer("two"), transfer("three"));
}

/// Downloads a directory in both formats and uploads it again.
async fn archives(agent: &TestAgent, directory: &Path) {
    let tree = directory.join("tree");
    fs::create_dir_all(&tree).unwrap();
    for (number, content) in noise(TREE_BYTES).chunks(1 << 20).enumerate() {
        fs::write(tree.join(number.to_string()), content).unwrap();
        fs::write(tree.join(format!("{number}.text")), "text ".repeat(50_000)).unwrap();
    }
    let path = tree.to_str().unwrap();
    let download = |kind: &str| agent.get(&format!("/fs/download_dir_{kind}?path={path}"));
    let (zip, zstd) = tokio::join!(body_of(download("zip")), body_of(download("zstd")));
    assert!(zstd.len() > TREE_BYTES);
    let form = Form::new()
        .part("zip_file", Part::bytes(zip))
        .text("dest_path", path_of(directory, "unzipped"));
    agent.ok(agent.post("/fs/upload_zip").multipart(form)).await;
}

/// Runs processes. The output of the spawned ones is retained after their end and must be small.
async fn processes(agent: &TestAgent) {
    const MANY_LINES: &str = "head -c 6000000 /dev/zero | tr '\\0' 'x' | fold -w 100";
    join_all((0..4).map(|_| async {
        let output = exec_shell(agent, MANY_LINES).await;
        assert!(output.stdout.len() >= 6_000_000);
    }))
    .await;
    join_all((0..16).map(|_| async {
        let output = shell(agent, "seq 1000").await.output().await;
        assert_eq!(output.stdout.lines().count(), 1000);
    }))
    .await;
}

/// Takes screenshots, sends input, shows the screen to viewers, and records it.
async fn screen_and_input(agent: &TestAgent) {
    let screenshots = async {
        for _ in 0..6 {
            screenshot(agent, &json!({})).await;
        }
    };
    let batches = async {
        let moves = (0..200).map(|x| action("move_mouse", json!({"x": 100 + x, "y": 200})));
        run_batch(agent, moves.collect()).await;
    };
    let viewers = join_all((0..4).map(|_| async {
        let mut viewer = Viewer::connect(&agent.ws_url("/live/view/socket")).await;
        viewer
            .watch_until("frames", |viewer| viewer.frames >= 10)
            .await;
    }));
    tokio::join!(
        screenshots,
        batches,
        viewers,
        replay(agent),
        replay(agent),
        tunnel(agent)
    );
}

/// Records until the viewers and others have had their time, then downloads the replay.
async fn replay(agent: &TestAgent) {
    let request = json!({"framerate": 30, "max_duration_in_seconds": 2});
    let replay = agent.ok(agent.post("/replays").json(&request)).await;
    let path = format!("/replays/{}", replay["replay_id"].as_str().unwrap());
    let response = until("the file", async || {
        let response = in_time("a response", agent.get(&path).send()).await;
        let response = response.unwrap();
        (response.status() == StatusCode::OK).then_some(response)
    })
    .await;
    in_time("the file", response.bytes()).await.unwrap();
    let deleted = in_time("a response", agent.request(Method::DELETE, &path).send()).await;
    assert_eq!(deleted.unwrap().status(), StatusCode::NO_CONTENT);
}

/// Receives large messages through a tunnel to Chromium.
async fn tunnel(agent: &TestAgent) {
    let mut page = Page::of(agent).await;
    for _ in 0..4 {
        let text = page.evaluate("'x'.repeat(8 << 20)").await;
        assert_eq!(text.as_str().map(str::len), Some(8 << 20));
    }
}

async fn scripts(agent: &TestAgent) {
    const CODE: &str = "const own = await context.newPage(); await own.setContent('<p>'.repeat(20000)); \
        const picture = await own.screenshot(); const text = await own.content(); await own.close(); \
        return picture.toString('base64') + text";
    let script = async || {
        for _ in 0..3 {
            // On a slow machine no worker may be ready in time.
            let answer = until("a script worker", async || {
                let request = agent
                    .post("/automation/execute")
                    .json(&json!({"code": CODE}));
                let (status, answer) = agent.answer(request).await;
                (status != StatusCode::SERVICE_UNAVAILABLE).then_some(answer)
            })
            .await;
            assert!(matches!(answer["result"], Value::String(_)), "{answer}");
        }
    };
    tokio::join!(script(), script());
}
