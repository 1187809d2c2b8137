//! Scripts that download: each gets its own files, also while others download, and leaves none
//! behind.

use std::{fs, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    response::{Html, IntoResponse},
    routing::get,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};

use crate::support::{
    agent::{Start, TestAgent},
    scripts::{error_of, execute, idle_counts, result_of},
    wait::{in_time, until},
};

/// A server of files `{name}-{size}`, whose content repeats the name.
struct Site {
    url: String,
    gate: Arc<Gate>,
    server: JoinHandle<()>,
}

/// Holds downloads of the name `held` after half of their content.
struct Gate {
    arrived: Semaphore,
    open: Semaphore,
}

impl Site {
    async fn start() -> Self {
        let gate = Arc::new(Gate {
            arrived: Semaphore::new(0),
            open: Semaphore::new(0),
        });
        let app = Router::new()
            .route("/page/{file}", get(page))
            .route("/file/{file}", get(file))
            .with_state(gate.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Site { url, gate, server }
    }

    /// Returns code that downloads a file as `download`, in a new tab.
    fn download(&self, file: &str) -> String {
        format!(
            "const own = await context.newPage(); await own.goto('{}/page/{file}'); \
             const [download] = await Promise.all([own.waitForEvent('download'), own.click('a')]); ",
            self.url
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn page(Path(file): Path<String>) -> Html<String> {
    Html(format!("<a href=/file/{file}>get</a>"))
}

async fn file(State(gate): State<Arc<Gate>>, Path(file): Path<String>) -> impl IntoResponse {
    let (name, size) = file.split_once('-').unwrap();
    let content = Bytes::from(content(name, size.parse().unwrap()));
    let held = name == "held";
    let (start, rest) = (
        content.slice(..content.len() / 2),
        content.slice(content.len() / 2..),
    );
    let stream = futures::stream::once(async move { Ok::<_, std::io::Error>(start) });
    let stream = futures::StreamExt::chain(
        stream,
        futures::stream::once(async move {
            if held {
                gate.arrived.add_permits(1);
                gate.open.acquire().await.unwrap().forget();
            }
            Ok(rest)
        }),
    );
    // All files have the same name, and none may overwrite another.
    let headers = [("content-disposition", "attachment; filename=same.bin")];
    (headers, Body::from_stream(stream))
}

fn content(name: &str, size: usize) -> String {
    name.chars().cycle().take(size).collect()
}

const KEEP: &str =
    "await download.saveAs('kept'); await own.close(); return fs.readFileSync('kept', 'utf8')";

async fn assert_nothing_remains(agent: &TestAgent) {
    idle_counts(agent, 2).await;
    until("an empty download directory", async || {
        let entries = fs::read_dir(agent.session_dir().join("downloads")).unwrap();
        (entries.count() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn concurrent_scripts_get_their_own_downloads() {
    let (agent, site) = (Start::headless().ready().await, Site::start().await);
    let body = json!({ "code": site.download("held-3000") + KEEP });
    let request = agent.post("/automation/execute").json(&body).send();
    let first = tokio::spawn(async move {
        let answer = in_time("an answer", request).await.unwrap();
        answer.json::<Value>().await.unwrap()
    });
    in_time("the first download", site.gate.arrived.acquire())
        .await
        .unwrap()
        .forget();
    // Other scripts run meanwhile: one that downloads, and one that does not.
    let code = site.download("other-2000") + KEEP;
    assert_eq!(result_of(&agent, &code).await, content("other", 2000));
    assert_eq!(result_of(&agent, "return page.url() !== ''").await, true);
    assert!(!first.is_finished());
    site.gate.open.add_permits(1);
    let answer = first.await.unwrap();
    assert_eq!(answer["result"], content("held", 3000), "{answer}");
    assert_nothing_remains(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn unfinished_download_is_removed_with_its_script() {
    let (agent, site) = (Start::headless().ready().await, Site::start().await);
    let code = site.download("held-3000") + "await own.close(); return 1";
    assert_eq!(result_of(&agent, &code).await, 1);
    assert_nothing_remains(&agent).await;
    // A download of an executor is removed with its call.
    let code = site.download("one-1000") + KEEP;
    let answer = execute(&agent, json!({ "code": code, "executor": "e" })).await;
    assert_eq!(answer["result"], content("one", 1000), "{answer}");
    until("an empty download directory", async || {
        let entries = fs::read_dir(agent.session_dir().join("downloads")).unwrap();
        (entries.count() == 0).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn downloads_count_towards_the_file_quota() {
    let agent = Start::headless()
        .with(["--script-files-mb", "1"])
        .ready()
        .await;
    let site = Site::start().await;
    let error = error_of(&agent, &(site.download("large-2000000") + KEEP), 20).await;
    assert!(
        error.contains("disk quota exceeded: the download has 2000000 bytes"),
        "{error}"
    );
    let code = "fs.writeFileSync('a', 'a'.repeat(600_000)); ".to_owned()
        + &site.download("large-500000")
        + KEEP;
    let error = error_of(&agent, &code, 20).await;
    assert!(error.contains("may take 448576 bytes more"), "{error}");
    assert_nothing_remains(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn removing_files_returns_exactly_their_quota() {
    let agent = Start::headless()
        .with(["--script-files-mb", "1"])
        .ready()
        .await;
    let site = Site::start().await;
    let code = site.download("large-500000")
        + "const write = (name, size) => { try { fs.writeFileSync(name, 'x'.repeat(size)); return true } catch (e) { return e.code } };
        const path = await download.path();
        const seen = [write('a', 600_000), write('a', 500_000)];
        fs.rmSync(path);
        seen.push(write('b', 600_000), write('b', 500_000));
        fs.renameSync('a', 'b');
        seen.push(write('c', 500_000), write('d', 100_000));
        fs.rmSync('c');
        fs.rmSync('b');
        seen.push(write('e', 1_100_000), write('e', 1_000_000));
        return seen";
    let seen = result_of(&agent, &code).await;
    let expected = json!([
        "EDQUOT", true, "EDQUOT", true, true, "EDQUOT", "EDQUOT", true
    ]);
    assert_eq!(seen, expected);
    agent.stop().await;
}
