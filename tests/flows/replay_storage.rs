//! Transfer of recordings into the blob store despite failures: from a fake agent, and from the
//! files that an agent left behind.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use berth::{
    api::{
        ids::{BrowserId, HostId, ProjectId, ReplayId},
        replays::{Replay, ReplayEndReason, ReplayStatus},
        viewport::Viewport,
    },
    control::{
        blobs::BlobStore,
        browsers::state::EndReason,
        fleet::{AgentAccess, AgentClient, AgentEndpoint, ReplayClient},
        purge::{ClockReading, Purge, Retention, SUSPENSION},
        replays::{
            BLOBS, MAX_REPLAYS_PER_BROWSER, QuotaExceeded, ReplayQuota, Replays,
            state::State as ReplayState,
        },
        store::{NewBrowserRow, ReplayRow, StateFilter, Store},
    },
    shutdown::Shutdown,
    system::process::boot::BootTime,
};
use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, TryStreamExt};
use reqwest::StatusCode;
use sea_orm::ConnectionTrait;
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::wait::{in_time, until};

const TOKEN: &str = "the-agents-own-token";

/// The recordings of the fake agent, and the failures it simulates.
#[derive(Default)]
struct FakeAgentState {
    replays: BTreeMap<ReplayId, (Replay, Bytes)>,
    /// Downloads end after half the file.
    truncates_downloads: bool,
    /// Deletions fail.
    fails_deletions: bool,
    /// Files of listed recordings are missing.
    hides_files: bool,
    fetches: usize,
}

#[derive(Clone, Default)]
struct FakeAgent(Arc<Mutex<FakeAgentState>>);

impl FakeAgent {
    async fn start(&self) -> ReplayClient {
        let app = Router::new()
            .route("/replays", get(list))
            .route("/replays/{id}", get(file).delete(discard))
            .route("/replays/{id}/stop", post(stop))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        ReplayClient::new(
            AgentClient::default(),
            AgentEndpoint {
                address,
                access: AgentAccess::Token(SecretString::from(TOKEN)),
                generation: Some(1),
            },
        )
    }

    fn with<T>(&self, change: impl FnOnce(&mut FakeAgentState) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn add_recording(&self, content: &Bytes) -> ReplayId {
        let id = ReplayId::generate();
        self.with(|state| {
            // Each starts later than the one before, even within the same millisecond.
            let age = Duration::from_secs(60 - state.replays.len() as u64);
            let replay = Replay::recording(id.clone(), (Utc::now() - age).into());
            state.replays.insert(id.clone(), (replay, content.clone()));
        });
        id
    }

    fn finish(&self, id: &ReplayId) {
        self.with(|state| end(&mut state.replays.get_mut(id).unwrap().0));
    }

    fn has(&self, id: &ReplayId) -> bool {
        self.with(|state| state.replays.contains_key(id))
    }
}

fn end(replay: &mut Replay) {
    if replay.status == ReplayStatus::Recording {
        replay.status = ReplayStatus::Finished;
        replay.finished_at = Some(Utc::now().into());
        replay.end_reason = Some(ReplayEndReason::Stopped);
        replay.duration_ms = Some(1500);
    }
}

async fn list(State(agent): State<FakeAgent>, headers: http::HeaderMap) -> Json<Vec<Replay>> {
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    let all = agent.with(|state| {
        let all = state.replays.values();
        all.map(|(replay, _)| replay.clone()).collect()
    });
    Json(all)
}

async fn file(State(agent): State<FakeAgent>, Path(id): Path<ReplayId>) -> Response {
    agent.with(|state| {
        state.fetches += 1;
        let Some((replay, content)) = state.replays.get(&id) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if replay.status == ReplayStatus::Recording {
            return StatusCode::ACCEPTED.into_response();
        }
        if state.hides_files {
            return StatusCode::NOT_FOUND.into_response();
        }
        let length = content.len();
        let content = if state.truncates_downloads {
            content.slice(..length / 2)
        } else {
            content.clone()
        };
        let chunk: Result<Bytes, std::io::Error> = Ok(content);
        let rest = futures::stream::iter(
            state
                .truncates_downloads
                .then(|| Err(std::io::Error::other("truncated"))),
        );
        let body = Body::from_stream(futures::stream::iter([chunk]).chain(rest));
        ([("content-length", length.to_string())], body).into_response()
    })
}

async fn discard(State(agent): State<FakeAgent>, Path(id): Path<ReplayId>) -> StatusCode {
    agent.with(|state| match state.replays.get(&id) {
        None => StatusCode::NOT_FOUND,
        Some((replay, _)) if replay.status == ReplayStatus::Recording => StatusCode::CONFLICT,
        Some(_) if state.fails_deletions => StatusCode::INTERNAL_SERVER_ERROR,
        Some(_) => {
            state.replays.remove(&id);
            StatusCode::NO_CONTENT
        }
    })
}

async fn stop(State(agent): State<FakeAgent>, Path(id): Path<ReplayId>) -> Json<Replay> {
    agent.with(|state| {
        let (replay, _) = state.replays.get_mut(&id).unwrap();
        end(replay);
        Json(replay.clone())
    })
}

/// The replay service of the control plane, without its server.
struct ControlPlane {
    replays: Replays,
    store: Store,
    project: ProjectId,
    browser: BrowserId,
    shutdown: Shutdown,
    directory: tempfile::TempDir,
}

impl ControlPlane {
    async fn start() -> ControlPlane {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_sqlite(&directory.path().join("db"))
            .await
            .unwrap();
        let project = store
            .default_project("default", Utc::now())
            .await
            .unwrap()
            .id;
        let browser = browser_of(&store, &project).await;
        ControlPlane {
            replays: service(&directory, &store, QUOTA, &Shutdown::new()),
            store,
            project,
            browser,
            shutdown: Shutdown::new(),
            directory,
        }
    }

    /// Simulates a restart after a kill.
    async fn restart(&mut self) {
        self.replays = service(&self.directory, &self.store, QUOTA, &self.shutdown);
        self.replays.recover().await.unwrap();
    }

    /// Limits the stored replays to `bytes`.
    async fn with_quota(mut self, bytes: u64) -> ControlPlane {
        self.replays = service(&self.directory, &self.store, bytes, &self.shutdown);
        self
    }

    /// Switches to a new browser of another project. Returns the previous project and browser.
    async fn switch_to_another_project(&mut self) -> (ProjectId, BrowserId) {
        let project = self.store.create_project("another", Utc::now()).await;
        let project = project.unwrap().id;
        let browser = browser_of(&self.store, &project).await;
        (
            std::mem::replace(&mut self.project, project),
            std::mem::replace(&mut self.browser, browser),
        )
    }

    async fn collect(&self, client: &ReplayClient) -> bool {
        let collected = self
            .replays
            .collect(&self.project, &self.browser, client)
            .await;
        collected.unwrap()
    }

    async fn row(&self, id: &ReplayId) -> ReplayRow {
        self.replays
            .find(&self.project, &self.browser, id)
            .await
            .unwrap()
    }

    async fn content(&self, id: &ReplayId) -> Vec<u8> {
        let size = self.replays.size(id).await.unwrap();
        let content = self.replays.read(id, 0..size).await.unwrap();
        let chunks: Vec<Bytes> = content.try_collect().await.unwrap();
        chunks.concat()
    }

    fn blob(&self, id: &ReplayId) -> PathBuf {
        let blobs = self.directory.path().join("blobs/replays");
        blobs.join(format!("{id}.mp4"))
    }

    /// Returns the directory of the files that the host left for the browser.
    fn orphan_directory(&self) -> PathBuf {
        self.directory
            .path()
            .join("orphans")
            .join(self.browser.as_str())
    }

    /// Purges at a time, after `uptime` seconds of the machine's first run.
    async fn purge(&self, keep: Duration, wall: DateTime<Utc>, uptime: u64) {
        self.purge_in("first", keep, wall, uptime).await;
    }

    /// Purges at a time, after `uptime` seconds of a run of the machine.
    async fn purge_in(&self, boot: &str, keep: Duration, wall: DateTime<Utc>, uptime: u64) {
        let retention = Retention {
            records: keep,
            replays: keep,
            audit_log: keep,
        };
        let boot = BootTime {
            boot_id: boot.to_owned(),
            uptime: Duration::from_secs(uptime),
        };
        Purge::new(self.store.clone(), self.replays.clone(), retention)
            .pass(ClockReading { wall, boot })
            .await;
    }

    /// Creates the record of a browser that has ended.
    async fn ended_browser(&self) -> BrowserId {
        let id = browser_of(&self.store, &self.project).await;
        self.store
            .publish_browser(&id, &HostId::generate(), 1, Utc::now())
            .await
            .unwrap();
        let close = self
            .store
            .close_browser(&id, EndReason::Deleted, Utc::now());
        close.await.unwrap();
        id
    }

    async fn take_over(&self) {
        let taking = self.replays.take_over(self.browser.clone());
        in_time("the takeover", taking).await.unwrap();
    }

    async fn sql(&self, statement: &str) {
        let file = self.directory.path().join("db");
        let db = sea_orm::Database::connect(format!("sqlite:{}", file.display()))
            .await
            .unwrap();
        db.execute_unprepared(statement).await.unwrap();
        db.close().await.unwrap();
    }
}

const QUOTA: u64 = 1 << 30;

fn service(
    directory: &tempfile::TempDir,
    store: &Store,
    room: u64,
    shutdown: &Shutdown,
) -> Replays {
    let blobs = BlobStore::open_directory(&directory.path().join("blobs"), &[BLOBS]).unwrap();
    let orphans = directory.path().join("orphans");
    let quota = ReplayQuota {
        total_bytes: room,
        project_bytes: None,
    };
    Replays::new(store.clone(), blobs, orphans, quota, shutdown.clone())
}

async fn browser_of(store: &Store, project: &ProjectId) -> BrowserId {
    let id = BrowserId::generate();
    let row = NewBrowserRow {
        id: id.clone(),
        project_id: project.clone(),
        name: None,
        headless: false,
        kiosk_mode: false,
        timeout_seconds: 60,
        viewport: Viewport::default(),
        start_url: None,
        tags: BTreeMap::new(),
        profile: None,
        idempotency: None,
        pool: None,
    };
    store.create_browser(row, Utc::now()).await.unwrap();
    id
}

fn content(byte: u8) -> Bytes {
    Bytes::from(vec![byte; 7 << 20])
}

#[tokio::test]
async fn finished_recordings_are_fetched_and_running_ones_are_kept() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let (one, two) = (
        agent.add_recording(&content(1)),
        agent.add_recording(&content(2)),
    );
    let look = control
        .replays
        .refresh(&control.project, &control.browser, &client);
    assert!(look.await.unwrap());
    agent.finish(&one);
    assert!(!control.collect(&client).await);
    assert!(!agent.has(&one) && agent.has(&two));
    assert_eq!(control.content(&one).await, content(1));
    let row = control.row(&one).await;
    assert_eq!(row.state, ReplayState::Stored);
    assert_eq!(row.end.reason, Some(ReplayEndReason::Stopped));
    assert_eq!(row.end.duration_ms, Some(1500));
    assert_eq!(row.end.size_bytes, Some(7 << 20));
    assert_eq!(control.row(&two).await.state, ReplayState::Recording);

    let settle = control
        .replays
        .settle(&control.project, &control.browser, &client);
    settle.await.unwrap();
    assert_eq!(control.content(&two).await, content(2));
    assert!(!agent.has(&two));
    assert!(control.collect(&client).await);
    let listed = control
        .replays
        .list(&control.project, &control.browser)
        .await;
    let listed: Vec<_> = listed.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, [one, two.clone()]);
    let foreign = control
        .replays
        .find(&ProjectId::generate(), &control.browser, &two)
        .await;
    assert!(foreign.is_err());
}

#[tokio::test]
async fn empty_recording_is_lost_with_its_end_reason() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let id = agent.add_recording(&Bytes::new());
    agent.with(|state| {
        let (replay, _) = state.replays.get_mut(&id).unwrap();
        end(replay);
        replay.size_bytes = Some(0);
        replay.end_reason = Some(ReplayEndReason::EncoderFailed);
    });
    assert!(control.collect(&client).await);
    assert!(!agent.has(&id));
    let row = control.row(&id).await;
    let reason = Some(ReplayEndReason::EncoderFailed);
    assert_eq!((row.state, row.end.reason), (ReplayState::Lost, reason));

    let orphaned = ReplayId::generate();
    let notes = json!({
        "replay_id": orphaned, "started_at": Utc::now(), "finished_at": Utc::now(), "status": "finished",
        "end_reason": "disk_full", "duration_ms": 0, "size_bytes": 0,
    });
    write_orphans(
        &control.orphan_directory(),
        &orphaned,
        &[(".json", &notes.to_string())],
    );
    control.take_over().await;
    let row = control.row(&orphaned).await;
    let reason = Some(ReplayEndReason::DiskFull);
    assert_eq!((row.state, row.end.reason), (ReplayState::Lost, reason));
}

#[tokio::test]
async fn recording_without_final_file_is_recovered_from_partial_file() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let id = agent.add_recording(&content(1));
    agent.finish(&id);
    agent.with(|state| state.hides_files = true);
    assert!(!control.collect(&client).await);
    assert!(agent.has(&id));
    assert_eq!(control.row(&id).await.state, ReplayState::Finished);
    write_orphans(&control.orphan_directory(), &id, &[(".part.mp4", "part")]);
    control.take_over().await;
    assert_eq!(control.content(&id).await, b"part");
}

#[tokio::test]
async fn recording_of_an_ended_session_whose_file_is_gone_is_lost() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let (gone, kept) = (
        agent.add_recording(&content(1)),
        agent.add_recording(&content(2)),
    );
    agent.finish(&gone);
    agent.with(|state| state.hides_files = true);
    let collect = || {
        let (project, browser) = (&control.project, &control.browser);
        control.replays.collect_ended(project, browser, &client)
    };
    assert!(!collect().await.unwrap());
    assert!(!agent.has(&gone));
    assert_eq!(control.row(&gone).await.state, ReplayState::Lost);
    agent.finish(&kept);
    agent.with(|state| state.hides_files = false);
    assert!(collect().await.unwrap());
    assert_eq!(control.content(&kept).await, content(2));
}

#[tokio::test]
async fn recording_stays_on_agent_until_it_is_stored() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let id = agent.add_recording(&content(1));
    agent.finish(&id);
    agent.with(|state| state.truncates_downloads = true);
    assert!(!control.collect(&client).await);
    assert!(agent.has(&id) && !control.blob(&id).exists());
    assert_eq!(control.row(&id).await.state, ReplayState::Finished);

    agent.with(|state| state.truncates_downloads = false);
    // The database refuses the update: the source must stay as well.
    control
        .sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON replays WHEN NEW.state = 'kept' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .await;
    assert!(!control.collect(&client).await);
    assert!(agent.has(&id));
    assert_eq!(control.row(&id).await.state, ReplayState::Finished);
    control.sql("DROP TRIGGER refuse").await;

    // The deletion on the agent fails: the file is not fetched again.
    agent.with(|state| state.fails_deletions = true);
    assert!(!control.collect(&client).await);
    assert_eq!(control.row(&id).await.state, ReplayState::Stored);
    let fetches =
        agent.with(|state| std::mem::take(&mut state.fails_deletions).then_some(state.fetches));
    assert!(control.collect(&client).await);
    assert_eq!(agent.with(|state| state.fetches), fetches.unwrap());
    assert!(!agent.has(&id));
    assert_eq!(control.content(&id).await, content(1));
}

/// Writes the files that an agent would have left of a recording.
fn write_orphans(directory: &FilePath, id: &ReplayId, files: &[(&str, &str)]) {
    fs::create_dir_all(directory).unwrap();
    for (ending, content) in files {
        fs::write(directory.join(format!("{id}{ending}")), content).unwrap();
    }
}

#[tokio::test]
async fn files_left_by_host_are_recovered() {
    let control = ControlPlane::start().await;
    let ids: Vec<ReplayId> = (0..6).map(|_| ReplayId::generate()).collect();
    let [complete, killed, both, metadata_only, empty, linked] = &ids[..] else {
        panic!("six");
    };
    let orphans = control.orphan_directory();
    let notes = json!({
        "replay_id": complete, "started_at": "2026-01-31T12:00:00.000Z", "finished_at": "2026-01-31T12:00:09.500Z",
        "status": "finished", "end_reason": "max_size", "duration_ms": 9400, "size_bytes": 5, "later": {"is": "ignored"},
    });
    write_orphans(
        &orphans,
        complete,
        &[(".json", &notes.to_string()), (".mp4", "whole")],
    );
    let recording = json!({"replay_id": killed, "started_at": "2026-01-31T12:00:00.000Z", "status": "recording"});
    write_orphans(
        &orphans,
        killed,
        &[(".json", &recording.to_string()), (".part.mp4", "part")],
    );
    write_orphans(
        &orphans,
        both,
        &[(".json", "{"), (".part.mp4", "part"), (".mp4", "made")],
    );
    // These have no usable content.
    write_orphans(
        &orphans,
        metadata_only,
        &[(".json", &recording.to_string())],
    );
    write_orphans(
        &orphans,
        empty,
        &[(".json", &recording.to_string()), (".part.mp4", "")],
    );
    let secret = control.directory.path().join("secret");
    fs::write(&secret, "foreign").unwrap();
    write_orphans(&orphans, linked, &[(".json", &recording.to_string())]);
    symlink(&secret, orphans.join(format!("{linked}.mp4"))).unwrap();
    fs::write(orphans.join("else.mp4"), "not a replay").unwrap();

    control.take_over().await;
    for (id, content, reason) in [
        (complete, "whole", ReplayEndReason::MaxSize),
        (killed, "part", ReplayEndReason::AgentEnded),
        (both, "made", ReplayEndReason::AgentEnded),
    ] {
        assert_eq!(control.content(id).await, content.as_bytes());
        let row = control.row(id).await;
        assert_eq!(
            (row.state, row.end.reason),
            (ReplayState::Stored, Some(reason))
        );
        assert_eq!(row.end.size_bytes, Some(content.len() as u64));
        assert!(row.end.finished_at.unwrap() >= row.started_at);
    }
    let row = control.row(complete).await;
    assert_eq!(row.end.duration_ms, Some(9400));
    assert_eq!(row.started_at.timestamp(), 1_769_860_800);
    assert_eq!(
        row.end.finished_at.unwrap().timestamp_millis(),
        1_769_860_809_500
    );
    for id in [metadata_only, empty, linked] {
        let row = control.row(id).await;
        assert_eq!(
            (row.state, row.end.reason),
            (ReplayState::Lost, Some(ReplayEndReason::Lost))
        );
        assert!(!control.blob(id).exists());
    }
    assert!(!orphans.exists());
    assert_eq!(fs::read_to_string(secret).unwrap(), "foreign");
}

#[tokio::test]
async fn files_left_for_more_replays_than_allowed_are_ignored() {
    let control = ControlPlane::start().await;
    let orphans = control.orphan_directory();
    let known = ReplayId::generate();
    let (store, now) = (&control.store, Utc::now());
    let adding = store.add_replay(&known, &control.project, &control.browser, now);
    adding.await.unwrap();
    for _ in 0..MAX_REPLAYS_PER_BROWSER + 50 {
        write_orphans(&orphans, &ReplayId::generate(), &[(".json", "{}")]);
    }
    write_orphans(&orphans, &known, &[(".mp4", "whole")]);
    control.take_over().await;
    let listed = control.replays.list(&control.project, &control.browser);
    assert_eq!(listed.await.unwrap().len(), MAX_REPLAYS_PER_BROWSER);
    assert_eq!(control.content(&known).await, b"whole");
    assert!(!orphans.exists());
}

#[tokio::test]
async fn replays_of_one_browser_cannot_be_changed_by_another() {
    let (mut control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let kept = agent.add_recording(&content(1));
    agent.finish(&kept);
    assert!(control.collect(&client).await);
    let recording = agent.add_recording(&content(2));
    let look = control
        .replays
        .refresh(&control.project, &control.browser, &client);
    look.await.unwrap();
    let before = [control.row(&kept).await, control.row(&recording).await];
    let original = control.switch_to_another_project().await;

    // From a running agent, which claims a file for one recording and that the other is empty.
    let forger = FakeAgent::default();
    let forged = forger.start().await;
    for (id, size) in [(&kept, None), (&recording, Some(0))] {
        let mut replay = Replay::recording(id.clone(), Utc::now().into());
        end(&mut replay);
        replay.size_bytes = size;
        let entry = (replay, Bytes::from("forged"));
        forger.with(|state| state.replays.insert(id.clone(), entry));
    }
    let own = forger.add_recording(&content(3));
    forger.finish(&own);
    control.collect(&forged).await;
    // Recordings of the other browser are ignored, and its own one is stored.
    assert!(forger.has(&kept) && forger.has(&recording) && !forger.has(&own));
    assert_eq!(forger.with(|state| state.fetches), 1);
    assert_eq!(control.content(&own).await, content(3));

    // From files left by a host, including its own recording, which is stored already.
    let none = json!({"status": "finished", "size_bytes": 0}).to_string();
    write_orphans(&control.orphan_directory(), &kept, &[(".mp4", "forged")]);
    write_orphans(&control.orphan_directory(), &own, &[(".mp4", "forged")]);
    write_orphans(&control.orphan_directory(), &recording, &[(".json", &none)]);
    control.take_over().await;
    assert!(!control.orphan_directory().exists());
    assert_eq!(control.content(&own).await, content(3));

    (control.project, control.browser) = original;
    let after = [control.row(&kept).await, control.row(&recording).await];
    assert_eq!(before, after);
    assert_eq!(control.content(&kept).await, content(1));
    agent.finish(&recording);
    assert!(control.collect(&client).await);
    assert_eq!(control.content(&recording).await, content(2));
}

#[tokio::test]
async fn stored_replays_are_limited_by_quota() {
    const EACH: u64 = 7 << 20;
    let agent = FakeAgent::default();
    let control = ControlPlane::start().await.with_quota(EACH).await;
    let client = agent.start().await;
    let ids: Vec<ReplayId> = (1..=3)
        .map(|byte| agent.add_recording(&content(byte)))
        .collect();
    let exceeded = control.replays.exceeded_quota(&control.project).await;
    assert_eq!(exceeded.unwrap(), None);
    agent.finish(&ids[0]);
    assert!(!control.collect(&client).await);
    let exceeded = control.replays.exceeded_quota(&control.project).await;
    assert_eq!(exceeded.unwrap(), Some(QuotaExceeded::Total));
    // A recording that was running is stored, unless it exceeds the quota by far: then it stays on
    // the agent.
    agent.finish(&ids[1]);
    agent.finish(&ids[2]);
    assert!(!control.collect(&client).await);
    assert_eq!(control.content(&ids[1]).await, content(2));
    assert!(agent.has(&ids[2]) && !control.blob(&ids[2]).exists());
    assert_eq!(control.row(&ids[2]).await.state, ReplayState::Finished);
    // It is deleted with its host.
    write_orphans(
        &control.orphan_directory(),
        &ids[2],
        &[(".mp4", "a little")],
    );
    control.take_over().await;
    let row = control.row(&ids[2]).await;
    let reason = Some(ReplayEndReason::Lost);
    assert_eq!((row.state, row.end.reason), (ReplayState::Lost, reason));
    assert!(!control.orphan_directory().exists() && !control.blob(&ids[2]).exists());
}

#[tokio::test]
async fn impossible_numbers_do_not_block_other_recordings() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let later = Utc::now() + chrono::TimeDelta::days(10_000);
    let (invalid, valid) = (
        agent.add_recording(&content(1)),
        agent.add_recording(&content(2)),
    );
    agent.finish(&invalid);
    agent.finish(&valid);
    agent.with(|state| {
        let (replay, _) = state.replays.get_mut(&invalid).unwrap();
        replay.started_at = later.into();
        replay.finished_at = Some(later.into());
        replay.duration_ms = Some(u64::MAX);
        replay.size_bytes = Some(u64::MAX);
    });
    let look = control
        .replays
        .refresh(&control.project, &control.browser, &client);
    assert!(look.await.unwrap());
    assert_eq!(control.row(&valid).await.state, ReplayState::Finished);

    let orphaned = ReplayId::generate();
    let notes = json!({
        "started_at": later, "finished_at": later, "duration_ms": u64::MAX, "size_bytes": u64::MAX,
    });
    let files = [(".json", &notes.to_string()[..]), (".mp4", "whole")];
    write_orphans(&control.orphan_directory(), &orphaned, &files);
    assert!(control.collect(&client).await);
    control.take_over().await;
    for id in [&invalid, &orphaned] {
        let row = control.row(id).await;
        assert_eq!(row.state, ReplayState::Stored);
        assert_eq!(row.end.duration_ms, Some(i64::MAX as u64));
        assert!(row.started_at <= row.end.finished_at.unwrap());
        assert!(row.end.finished_at.unwrap() <= Utc::now());
    }
}

#[tokio::test]
async fn failed_recovery_of_one_recording_does_not_block_others() {
    let control = ControlPlane::start().await;
    let (refused, other) = (ReplayId::generate(), ReplayId::generate());
    for id in [&refused, &other] {
        write_orphans(&control.orphan_directory(), id, &[(".mp4", "whole")]);
    }
    control
        .sql(&format!(
            "CREATE TRIGGER refuse BEFORE UPDATE ON replays WHEN NEW.id = '{refused}' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .await;
    let taking = control.replays.take_over(control.browser.clone());
    until("the other recording to be stored", async || {
        let row = control.store.find_replay(&other).await.unwrap()?;
        (row.state == ReplayState::Stored).then_some(())
    })
    .await;
    assert!(
        control
            .orphan_directory()
            .join(format!("{refused}.mp4"))
            .exists()
    );
    control.sql("DROP TRIGGER refuse").await;
    in_time("the takeover", taking).await.unwrap();
    assert_eq!(control.content(&refused).await, b"whole");
    assert!(!control.orphan_directory().exists());
}

#[tokio::test]
async fn failed_recovery_is_retried_and_keeps_files() {
    let control = ControlPlane::start().await;
    let id = ReplayId::generate();
    write_orphans(&control.orphan_directory(), &id, &[(".mp4", "whole")]);
    // A file prevents the creation of the store's directory.
    let obstacle = control.directory.path().join("blobs/replays");
    fs::write(&obstacle, "").unwrap();
    let taking = control.replays.take_over(control.browser.clone());
    until("the replay in the database", async || {
        let row = control.store.find_replay(&id).await.unwrap()?;
        (row.state == ReplayState::Finished).then_some(())
    })
    .await;
    assert!(
        control
            .orphan_directory()
            .join(format!("{id}.mp4"))
            .exists()
    );
    fs::remove_file(&obstacle).unwrap();
    in_time("the takeover", taking).await.unwrap();
    assert_eq!(control.content(&id).await, b"whole");
    assert!(!control.orphan_directory().exists());
}

#[tokio::test]
async fn restart_completes_interrupted_transfers() {
    let (mut control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let (kept, gone, open) = (
        agent.add_recording(&content(1)),
        agent.add_recording(&content(2)),
        agent.add_recording(&content(3)),
    );
    agent.finish(&kept);
    agent.finish(&gone);
    control.collect(&client).await;
    fs::remove_file(control.blob(&gone)).unwrap();
    let orphan = ReplayId::generate();
    fs::write(control.blob(&orphan), "without a record").unwrap();
    fs::write(
        format!("{}#1", control.blob(&kept).display()),
        "half written",
    )
    .unwrap();
    let late = ReplayId::generate();
    write_orphans(&control.orphan_directory(), &late, &[(".part.mp4", "part")]);

    control.restart().await;
    assert!(control.blob(&orphan).exists());
    assert_eq!(control.row(&kept).await.state, ReplayState::Stored);
    assert_eq!(control.content(&kept).await, content(1));
    let lost = control.row(&gone).await;
    assert_eq!(
        (lost.state, lost.end.reason),
        (ReplayState::Lost, Some(ReplayEndReason::Lost))
    );
    until("the recovery of the remaining files", async || {
        let row = control.row(&open).await;
        (row.state == ReplayState::Lost && !control.orphan_directory().exists()).then_some(())
    })
    .await;
    assert_eq!(control.content(&late).await, b"part");
    assert_eq!(
        fs::read_dir(control.blob(&kept).parent().unwrap())
            .unwrap()
            .count(),
        3
    );
}

#[tokio::test]
async fn files_of_a_newer_database_are_kept_until_their_retention_ends() {
    let (mut control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let replay = agent.add_recording(&content(1));
    agent.finish(&replay);
    assert!(control.collect(&client).await);
    let left = ReplayId::generate();
    let unknown = control
        .directory
        .path()
        .join("orphans")
        .join(BrowserId::generate().as_str());
    write_orphans(&unknown, &left, &[(".mp4", "whole")]);
    // The database is restored from a backup that was made before.
    control
        .sql(&format!("DELETE FROM replays WHERE id = '{replay}'"))
        .await;
    control.restart().await;
    let browser = unknown
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let taking = control.replays.take_over(browser);
    in_time("the takeover", taking).await.unwrap();
    assert!(control.blob(&replay).exists());
    assert!(unknown.join(format!("{left}.mp4")).exists());

    let retention = Duration::from_secs(60 * 60);
    let (start, suspension) = (Utc::now(), SUSPENSION.as_secs());
    control.purge(retention, start, 0).await;
    assert!(control.blob(&replay).exists(), "purges start suspended");
    let later = start + TimeDelta::seconds(suspension.cast_signed());
    control.purge(retention, later, suspension).await;
    assert!(!control.blob(&replay).exists());
    assert!(!unknown.exists());
}

#[tokio::test]
async fn replay_that_an_older_database_has_as_open_is_stored() {
    let (mut control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let replay = agent.add_recording(&content(1));
    agent.finish(&replay);
    assert!(control.collect(&client).await);
    // The database is restored from a backup that was made during the recording.
    control
        .sql(&format!(
            "UPDATE replays SET state = 'recording', finished_at = NULL, end_reason = NULL, \
             size_bytes = NULL WHERE id = '{replay}'"
        ))
        .await;
    control.restart().await;
    let row = until("the recovery", async || {
        let row = control.row(&replay).await;
        (!row.state.is_open()).then_some(row)
    })
    .await;
    assert_eq!(row.state, ReplayState::Stored);
    assert_eq!(row.end.size_bytes, Some(content(1).len() as u64));
    assert_eq!(control.content(&replay).await, content(1));
}

#[tokio::test]
async fn replays_older_than_retention_are_deleted() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let (old, new, recording) = (
        agent.add_recording(&content(1)),
        agent.add_recording(&content(2)),
        agent.add_recording(&content(3)),
    );
    agent.finish(&old);
    agent.finish(&new);
    control.collect(&client).await;
    control
        .sql(&format!(
            "UPDATE replays SET finished_at = finished_at - 86400000, started_at = 0 WHERE id IN ('{old}', '{recording}')"
        ))
        .await;
    let retention = Duration::from_secs(60 * 60);
    let now = Utc::now();
    control.purge(retention, now, 0).await;
    assert!(control.blob(&old).exists(), "purges start suspended");
    let later = SUSPENSION.as_secs();
    let now = now + TimeDelta::seconds(later.cast_signed());
    control
        .sql("UPDATE replays SET finished_at = finished_at + 259200000")
        .await;
    control.purge(retention, now, later).await;
    assert!(control.store.find_replay(&old).await.unwrap().is_none());
    assert!(!control.blob(&old).exists());
    assert_eq!(control.content(&new).await, content(2));
    assert_eq!(control.row(&recording).await.state, ReplayState::Recording);
}

#[tokio::test]
async fn set_wall_clock_suspends_purges_so_that_it_can_be_corrected() {
    let (control, agent) = (ControlPlane::start().await, FakeAgent::default());
    let client = agent.start().await;
    let replay = agent.add_recording(&content(1));
    agent.finish(&replay);
    control.collect(&client).await;
    let ended = control.ended_browser().await;
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let is_retained = async || {
        let record = control
            .store
            .find_browser(&control.project, &ended, StateFilter::All);
        let record = record.await.unwrap().is_some();
        assert_eq!(record, control.blob(&replay).exists());
        record
    };
    let (start, hour, year) = (Utc::now(), 60 * 60, TimeDelta::days(365));
    let suspension = SUSPENSION.as_secs();
    let wall_at = |uptime: u64| start + TimeDelta::seconds(uptime.cast_signed());
    let mut uptime = suspension;
    for at in [0, suspension] {
        control.purge(month, wall_at(at), at).await;
    }
    // The clock is a year ahead until the last hour of the suspension, and then corrected.
    while uptime < 2 * suspension - hour {
        uptime += hour;
        control.purge(month, wall_at(uptime) + year, uptime).await;
        assert!(is_retained().await);
    }
    uptime += hour;
    control.purge(month, wall_at(uptime), uptime).await;
    uptime += suspension;
    control.purge(month, wall_at(uptime), uptime).await;
    assert!(is_retained().await);
    // The machine is off for a week, or for longer.
    let mut off = TimeDelta::zero();
    for (boot, days) in [("second", 7), ("third", 30)] {
        off += TimeDelta::days(days);
        let now = wall_at(uptime) + off;
        control.purge_in(boot, month, now, uptime).await;
        assert!(is_retained().await);
    }
    // The clock is not corrected.
    let now = wall_at(uptime + suspension) + off;
    control
        .purge_in("third", month, now, uptime + suspension)
        .await;
    assert!(!is_retained().await);
}
