//! Archives of a running Chromium while a page writes, restored in another one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use axum::{Router, extract::Query, response::Html, routing::get};
use berth::control::profiles::inspection::{InspectLimits, inspect};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::spawn_blocking};

use crate::support::{
    agent::{Start, TestAgent},
    wait::{in_time, until},
};

/// The number of archives.
const ARCHIVES_VARIABLE: &str = "BERTH_TEST_LIVE_ARCHIVES";
const DEFAULT_ARCHIVES: u64 = 3;
/// The numbers that the page writes between two archives.
const NUMBERS_BETWEEN: u64 = 30;
const LIMITS: InspectLimits = InspectLimits {
    unpacked_bytes: 1 << 30,
    ratio: 200,
    newest_chromium: None,
};

const OPEN: &str = "const open = () => new Promise((resolve, reject) => {
    const request = indexedDB.open('load', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('numbers');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
});";

/// Writes one number after another everywhere, and reports each that is written.
const WRITE: &str = "(async () => {
    await navigator.serviceWorker.register('/worker.js');
    const [db, cache] = [await open(), await caches.open('load')];
    const filling = crypto.getRandomValues(new Uint8Array(8192));
    for (let number = 1; ; number++) {
        localStorage.number = number;
        document.cookie = `number=${number}; max-age=100000`;
        await new Promise((resolve, reject) => {
            const transaction = db.transaction('numbers', 'readwrite');
            transaction.objectStore('numbers').put({number, filling}, number);
            transaction.oncomplete = resolve;
            transaction.onabort = () => reject(transaction.error);
        });
        if (number % 10 === 1) await cache.put(`/cached/${number}`, new Response(String(number)));
        await fetch(`/written?number=${number}`);
    }
})();";

/// Reports what the page finds.
const CHECK: &str = "(async () => {
    const db = await open();
    const keys = await new Promise((resolve, reject) => {
        const request = db.transaction('numbers').objectStore('numbers').getAllKeys();
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
    const registrations = await navigator.serviceWorker.getRegistrations();
    const cached = await caches.match('/cached/1');
    await fetch('/found?' + new URLSearchParams({
        cookie: document.cookie.match(/number=(\\d+)/)?.[1] ?? 0,
        stored: localStorage.number ?? 0,
        database: keys.length,
        last: keys.at(-1) ?? 0,
        workers: registrations.length,
        round: new URLSearchParams(location.search).get('round'),
        cached: cached ? await cached.text() : 0,
    }));
})();";

/// The report of a page.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Found {
    cookie: u64,
    stored: u64,
    /// The number of keys in the database, and the highest one.
    database: u64,
    last: u64,
    workers: u64,
    cached: u64,
    /// The number of the archive, from the URL of the page.
    round: u64,
}

#[derive(Deserialize)]
struct Written {
    number: u64,
}

/// The site of both pages.
struct LoadSite {
    url: String,
    written: Arc<AtomicU64>,
    found: Arc<Mutex<Option<Found>>>,
}

impl LoadSite {
    async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (written, found) = (Arc::<AtomicU64>::default(), Arc::<Mutex<_>>::default());
        let (newest, report) = (written.clone(), found.clone());
        let page = |script: &str| Html(format!("<!doctype html><script>{OPEN}{script}</script>"));
        let (write, check) = (page(WRITE), page(CHECK));
        let worker = (
            [("content-type", "text/javascript")],
            "self.onfetch = () => {};",
        );
        let app = Router::new()
            .route("/write", get(async move || write))
            .route("/check", get(async move || check))
            .route("/worker.js", get(async move || worker))
            .route(
                "/written",
                get(async move |Query(Written { number }): Query<Written>| {
                    newest.store(number, Relaxed);
                }),
            )
            .route(
                "/found",
                get(async move |Query(found): Query<Found>| *report.lock() = Some(found)),
            );
        tokio::spawn(async move { axum::serve(listener, app).await });
        LoadSite {
            url,
            written,
            found,
        }
    }

    /// Opens a page.
    async fn open(&self, agent: &TestAgent, page: &str) {
        let url = format!("{}{page}", self.url);
        let request = agent.put("/chromium/start_url").json(&json!({"url": url}));
        agent.ok(request).await;
    }

    /// Waits until a number is written, and returns the newest.
    async fn written(&self, least: u64) -> u64 {
        until("written numbers", async || {
            let newest = self.written.load(Relaxed);
            (newest >= least).then_some(newest)
        })
        .await
    }

    /// Waits for the report of a page with the data of a round. A page may report several times.
    async fn found(&self, round: u64) -> Found {
        until("a report", async || {
            self.found.lock().take_if(|found| found.round == round)
        })
        .await
    }
}

async fn restore(agent: &TestAgent, archive: Vec<u8>) {
    let before = agent.chromium_number("generation").await;
    let (status, response) = agent.answer(agent.put("/user_data").body(archive)).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    agent
        .chromium_when("the next Chromium", |status| {
            status["generation"].as_u64() > Some(before) && status["state"] == "running"
        })
        .await;
}

/// Checks that the inspection finds the page's storages.
async fn check_inspection(site: &LoadSite, archive: Vec<u8>) {
    let inspecting = spawn_blocking(move || {
        let work = TempDir::new().unwrap();
        inspect(&archive[..], work.path(), LIMITS).unwrap()
    });
    let inspection = inspecting.await.unwrap();
    assert_eq!(inspection.origins.join(" "), site.url, "{inspection:?}");
    let cookies = [("127.0.0.1".to_owned(), 1)];
    assert_eq!(inspection.cookies, cookies.into(), "{inspection:?}");
    assert_eq!(inspection.skipped, [""; 0]);
    assert!(inspection.chromium_version.is_some());
}

#[tokio::test]
async fn live_archive_has_all_that_was_written_before_it() {
    let archives =
        std::env::var(ARCHIVES_VARIABLE).map_or(DEFAULT_ARCHIVES, |count| count.parse().unwrap());
    let site = LoadSite::serve().await;
    let source = Start::headless().ready().await;
    let other = Start::headless().ready().await;
    let running = source.ok(source.get("/chromium")).await;
    site.open(&source, "/write").await;
    let mut written = 0;
    for round in 0..archives {
        written = site.written(written + NUMBERS_BETWEEN).await;
        let request = source.get("/user_data?live=true&compression_level=1");
        let response = in_time("an archive", request.send()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let archive = in_time("the content", response.bytes()).await.unwrap();
        check_inspection(&site, archive.to_vec()).await;
        restore(&other, archive.to_vec()).await;
        site.open(&other, &format!("/check?round={round}")).await;
        let found = site.found(round).await;
        let all = [found.cookie, found.stored, found.last];
        assert!(
            all.into_iter().all(|number| number >= written),
            "round {round}: {found:?} after {written}"
        );
        assert_eq!(found.database, found.last, "{found:?}");
        assert_eq!(found.workers, 1, "{found:?}");
        assert_eq!(found.cached, 1, "{found:?}");
    }
    let status = source.ok(source.get("/chromium")).await;
    assert_eq!(status["pid"], running["pid"]);
    // Each write of cookies was observed.
    assert!(!source.log().contains("may lack cookies"));
    source.stop().await;
    other.stop().await;
}
