//! How recordings come into the blob store, whatever breaks off on the way: from an agent that the test plays, and out of what one left.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use berth::api::ids::{BrowserId, ProjectId, ReplayId};
use berth::api::replays::{Replay, ReplayEndReason, ReplayStatus};
use berth::api::viewport::Viewport;
use berth::control::blobs::Blobs;
use berth::control::fleet::{AgentClient, ReplayClient};
use berth::control::replays::{Replays, state::State as Where};
use berth::control::store::{NewBrowserRow, ReplayRow, Store};
use berth::shutdown::Shutdown;
use chrono::Utc;
use futures::{StreamExt, TryStreamExt};
use reqwest::StatusCode;
use sea_orm::ConnectionTrait;
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::wait::{in_time, until};

const TOKEN: &str = "the-agents-own-token";

/// An agent's recordings, and what goes wrong with them.
#[derive(Default)]
struct Played {
    replays: BTreeMap<ReplayId, (Replay, Bytes)>,
    /// Breaks files off in their middle.
    breaks_off: bool,
    /// Does not remove anything.
    keeps: bool,
    /// Has no file in its place, though there is something.
    misplaces: bool,
    fetches: usize,
}

#[derive(Clone, Default)]
struct PlayedAgent(Arc<Mutex<Played>>);

impl PlayedAgent {
    async fn start(&self) -> ReplayClient {
        let app = Router::new()
            .route("/replays", get(list))
            .route("/replays/{id}", get(file).delete(discard))
            .route("/replays/{id}/stop", post(stop))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        ReplayClient::new(AgentClient::default(), address, SecretString::from(TOKEN))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Played) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    fn records(&self, content: &Bytes) -> ReplayId {
        let id = ReplayId::generate();
        self.with(|played| {
            // Each later than the one before, however fast they follow each other.
            let before = Duration::from_secs(60 - played.replays.len() as u64);
            let replay = Replay::begun(id.clone(), (Utc::now() - before).into());
            played.replays.insert(id.clone(), (replay, content.clone()));
        });
        id
    }

    fn ends(&self, id: &ReplayId) {
        self.with(|played| end(&mut played.replays.get_mut(id).unwrap().0));
    }

    fn has(&self, id: &ReplayId) -> bool {
        self.with(|played| played.replays.contains_key(id))
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

async fn list(State(agent): State<PlayedAgent>, headers: http::HeaderMap) -> Json<Vec<Replay>> {
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    let all = agent.with(|played| {
        let all = played.replays.values();
        all.map(|(replay, _)| replay.clone()).collect()
    });
    Json(all)
}

async fn file(State(agent): State<PlayedAgent>, Path(id): Path<ReplayId>) -> Response {
    agent.with(|played| {
        played.fetches += 1;
        let Some((replay, content)) = played.replays.get(&id) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if replay.status == ReplayStatus::Recording {
            return StatusCode::ACCEPTED.into_response();
        }
        if played.misplaces {
            return StatusCode::NOT_FOUND.into_response();
        }
        let length = content.len();
        let content = if played.breaks_off {
            content.slice(..length / 2)
        } else {
            content.clone()
        };
        let chunk: Result<Bytes, std::io::Error> = Ok(content);
        let rest = futures::stream::iter(
            played
                .breaks_off
                .then(|| Err(std::io::Error::other("broken off"))),
        );
        let body = Body::from_stream(futures::stream::iter([chunk]).chain(rest));
        ([("content-length", length.to_string())], body).into_response()
    })
}

async fn discard(State(agent): State<PlayedAgent>, Path(id): Path<ReplayId>) -> StatusCode {
    agent.with(|played| match played.replays.get(&id) {
        None => StatusCode::NOT_FOUND,
        Some((replay, _)) if replay.status == ReplayStatus::Recording => StatusCode::CONFLICT,
        Some(_) if played.keeps => StatusCode::INTERNAL_SERVER_ERROR,
        Some(_) => {
            played.replays.remove(&id);
            StatusCode::NO_CONTENT
        }
    })
}

async fn stop(State(agent): State<PlayedAgent>, Path(id): Path<ReplayId>) -> Json<Replay> {
    agent.with(|played| {
        let (replay, _) = played.replays.get_mut(&id).unwrap();
        end(replay);
        Json(replay.clone())
    })
}

/// Control's side, without its server.
struct Keeper {
    replays: Replays,
    store: Store,
    project: ProjectId,
    browser: BrowserId,
    shutdown: Shutdown,
    folder: tempfile::TempDir,
}

impl Keeper {
    async fn start() -> Keeper {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_sqlite(&folder.path().join("db")).await.unwrap();
        let project = store
            .default_project("default", Utc::now())
            .await
            .unwrap()
            .id;
        let browser = browser_of(&store, &project).await;
        Keeper {
            replays: service(&folder, &store, ROOM, &Shutdown::new()),
            store,
            project,
            browser,
            shutdown: Shutdown::new(),
            folder,
        }
    }

    /// Control is killed and started again.
    async fn again(&mut self) {
        self.replays = service(&self.folder, &self.store, ROOM, &self.shutdown);
        self.replays.recover().await.unwrap();
    }

    /// With room for so many bytes.
    async fn with_room(mut self, bytes: u64) -> Keeper {
        self.replays = service(&self.folder, &self.store, bytes, &self.shutdown);
        self
    }

    /// From here on it is about another browser, of another project.
    async fn of_another_project(&mut self) -> (ProjectId, BrowserId) {
        let project = self.store.create_project("another", Utc::now()).await;
        let project = project.unwrap().id;
        let browser = browser_of(&self.store, &project).await;
        (
            std::mem::replace(&mut self.project, project),
            std::mem::replace(&mut self.browser, browser),
        )
    }

    async fn collect(&self, recorder: &ReplayClient) -> bool {
        let collected = self
            .replays
            .collect(&self.project, &self.browser, recorder)
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
        let blobs = self.folder.path().join("blobs/replays");
        blobs.join(format!("{id}.mp4"))
    }

    /// What a host has left of the browser.
    fn left(&self) -> PathBuf {
        self.folder.path().join("left").join(self.browser.as_str())
    }

    async fn take_over(&self) {
        let taking = self.replays.take_over(self.browser.clone());
        in_time("it is taken over", taking).await.unwrap();
    }

    async fn sql(&self, statement: &str) {
        let file = self.folder.path().join("db");
        let db = sea_orm::Database::connect(format!("sqlite:{}", file.display()))
            .await
            .unwrap();
        db.execute_unprepared(statement).await.unwrap();
        db.close().await.unwrap();
    }
}

const ROOM: u64 = 1 << 30;

fn service(folder: &tempfile::TempDir, store: &Store, room: u64, shutdown: &Shutdown) -> Replays {
    let blobs = Blobs::open(&folder.path().join("blobs")).unwrap();
    let left = folder.path().join("left");
    Replays::new(store.clone(), blobs, left, room, shutdown.clone())
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
        idempotency: None,
    };
    store.create_browser(row, Utc::now()).await.unwrap();
    id
}

fn content(byte: u8) -> Bytes {
    Bytes::from(vec![byte; 7 << 20])
}

#[tokio::test]
async fn what_has_ended_is_fetched_and_what_has_not_is_waited_for() {
    let (keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let (one, two) = (agent.records(&content(1)), agent.records(&content(2)));
    let look = keeper
        .replays
        .look(&keeper.project, &keeper.browser, &recorder);
    assert!(look.await.unwrap());
    agent.ends(&one);
    assert!(!keeper.collect(&recorder).await);
    assert!(!agent.has(&one) && agent.has(&two));
    assert_eq!(keeper.content(&one).await, content(1));
    let row = keeper.row(&one).await;
    assert_eq!(row.state, Where::Kept);
    assert_eq!(row.end.reason, Some(ReplayEndReason::Stopped));
    assert_eq!(row.end.duration_ms, Some(1500));
    assert_eq!(row.end.size_bytes, Some(7 << 20));
    assert_eq!(keeper.row(&two).await.state, Where::Recording);

    let settle = keeper
        .replays
        .settle(&keeper.project, &keeper.browser, &recorder);
    settle.await.unwrap();
    assert_eq!(keeper.content(&two).await, content(2));
    assert!(!agent.has(&two));
    assert!(keeper.collect(&recorder).await);
    let listed = keeper.replays.list(&keeper.project, &keeper.browser).await;
    let listed: Vec<_> = listed.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, [one, two.clone()]);
    let stranger = keeper
        .replays
        .find(&ProjectId::generate(), &keeper.browser, &two)
        .await;
    assert!(stranger.is_err());
}

#[tokio::test]
async fn a_recording_of_nothing_is_told_with_its_reason() {
    let (keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let id = agent.records(&Bytes::new());
    agent.with(|played| {
        let (replay, _) = played.replays.get_mut(&id).unwrap();
        end(replay);
        replay.size_bytes = Some(0);
        replay.end_reason = Some(ReplayEndReason::EncoderFailed);
    });
    assert!(keeper.collect(&recorder).await);
    assert!(!agent.has(&id));
    let row = keeper.row(&id).await;
    let reason = Some(ReplayEndReason::EncoderFailed);
    assert_eq!((row.state, row.end.reason), (Where::Lost, reason));

    let left = ReplayId::generate();
    let notes = json!({
        "replay_id": left, "started_at": Utc::now(), "finished_at": Utc::now(), "status": "finished",
        "end_reason": "disk_full", "duration_ms": 0, "size_bytes": 0,
    });
    leave(&keeper.left(), &left, &[(".json", &notes.to_string())]);
    keeper.take_over().await;
    let row = keeper.row(&left).await;
    let reason = Some(ReplayEndReason::DiskFull);
    assert_eq!((row.state, row.end.reason), (Where::Lost, reason));
}

#[tokio::test]
async fn a_recording_that_was_not_put_in_its_place_is_taken_out_of_what_is_left() {
    let (keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let id = agent.records(&content(1));
    agent.ends(&id);
    agent.with(|played| played.misplaces = true);
    assert!(!keeper.collect(&recorder).await);
    assert!(agent.has(&id));
    assert_eq!(keeper.row(&id).await.state, Where::Finished);
    leave(&keeper.left(), &id, &[(".part.mp4", "part")]);
    keeper.take_over().await;
    assert_eq!(keeper.content(&id).await, b"part");
}

#[tokio::test]
async fn what_breaks_off_stays_where_it_is_until_it_has_come_whole() {
    let (keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let id = agent.records(&content(1));
    agent.ends(&id);
    agent.with(|played| played.breaks_off = true);
    assert!(!keeper.collect(&recorder).await);
    assert!(agent.has(&id) && !keeper.blob(&id).exists());
    assert_eq!(keeper.row(&id).await.state, Where::Finished);

    agent.with(|played| played.breaks_off = false);
    // The database does not take it: its source is not to be touched either.
    keeper
        .sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON replays WHEN NEW.state = 'kept' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .await;
    assert!(!keeper.collect(&recorder).await);
    assert!(agent.has(&id));
    assert_eq!(keeper.row(&id).await.state, Where::Finished);
    keeper.sql("DROP TRIGGER refuse").await;

    // It cannot be removed from its agent: it is not fetched again for that.
    agent.with(|played| played.keeps = true);
    assert!(!keeper.collect(&recorder).await);
    assert_eq!(keeper.row(&id).await.state, Where::Kept);
    let fetches = agent.with(|played| std::mem::take(&mut played.keeps).then_some(played.fetches));
    assert!(keeper.collect(&recorder).await);
    assert_eq!(agent.with(|played| played.fetches), fetches.unwrap());
    assert!(!agent.has(&id));
    assert_eq!(keeper.content(&id).await, content(1));
}

/// Writes what an agent would have left of a recording.
fn leave(folder: &FilePath, id: &ReplayId, files: &[(&str, &str)]) {
    fs::create_dir_all(folder).unwrap();
    for (ending, content) in files {
        fs::write(folder.join(format!("{id}{ending}")), content).unwrap();
    }
}

#[tokio::test]
async fn what_a_host_has_left_is_taken_over() {
    let keeper = Keeper::start().await;
    let ids: Vec<ReplayId> = (0..6).map(|_| ReplayId::generate()).collect();
    let [whole, killed, both, noted, empty, linked] = &ids[..] else {
        panic!("six");
    };
    let left = keeper.left();
    let notes = json!({
        "replay_id": whole, "started_at": "2026-01-31T12:00:00.000Z", "finished_at": "2026-01-31T12:00:09.500Z",
        "status": "finished", "end_reason": "max_size", "duration_ms": 9400, "size_bytes": 5, "later": {"is": "ignored"},
    });
    leave(
        &left,
        whole,
        &[(".json", &notes.to_string()), (".mp4", "whole")],
    );
    let begun = json!({"replay_id": killed, "started_at": "2026-01-31T12:00:00.000Z", "status": "recording"});
    leave(
        &left,
        killed,
        &[(".json", &begun.to_string()), (".part.mp4", "part")],
    );
    leave(
        &left,
        both,
        &[(".json", "{"), (".part.mp4", "part"), (".mp4", "made")],
    );
    // Of these there is nothing to be seen.
    leave(&left, noted, &[(".json", &begun.to_string())]);
    leave(
        &left,
        empty,
        &[(".json", &begun.to_string()), (".part.mp4", "")],
    );
    let secret = keeper.folder.path().join("secret");
    fs::write(&secret, "of somebody else").unwrap();
    leave(&left, linked, &[(".json", &begun.to_string())]);
    symlink(&secret, left.join(format!("{linked}.mp4"))).unwrap();
    fs::write(left.join("else.mp4"), "not a replay").unwrap();

    keeper.take_over().await;
    for (id, content, reason) in [
        (whole, "whole", ReplayEndReason::MaxSize),
        (killed, "part", ReplayEndReason::AgentEnded),
        (both, "made", ReplayEndReason::AgentEnded),
    ] {
        assert_eq!(keeper.content(id).await, content.as_bytes());
        let row = keeper.row(id).await;
        assert_eq!((row.state, row.end.reason), (Where::Kept, Some(reason)));
        assert_eq!(row.end.size_bytes, Some(content.len() as u64));
        assert!(row.end.finished_at.unwrap() >= row.started_at);
    }
    let row = keeper.row(whole).await;
    assert_eq!(row.end.duration_ms, Some(9400));
    assert_eq!(row.started_at.timestamp(), 1_769_860_800);
    assert_eq!(
        row.end.finished_at.unwrap().timestamp_millis(),
        1_769_860_809_500
    );
    for id in [noted, empty, linked] {
        let row = keeper.row(id).await;
        assert_eq!(
            (row.state, row.end.reason),
            (Where::Lost, Some(ReplayEndReason::Lost))
        );
        assert!(!keeper.blob(id).exists());
    }
    assert!(!left.exists());
    assert_eq!(fs::read_to_string(secret).unwrap(), "of somebody else");
}

#[tokio::test]
async fn one_browsers_replays_are_safe_from_another() {
    let (mut keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let kept = agent.records(&content(1));
    agent.ends(&kept);
    assert!(keeper.collect(&recorder).await);
    let recording = agent.records(&content(2));
    let look = keeper
        .replays
        .look(&keeper.project, &keeper.browser, &recorder);
    look.await.unwrap();
    let before = [keeper.row(&kept).await, keeper.row(&recording).await];
    let owner = keeper.of_another_project().await;

    // From an agent that lives: one says that there is a file, the other that there is none.
    let forger = PlayedAgent::default();
    let forged = forger.start().await;
    for (id, size) in [(&kept, None), (&recording, Some(0))] {
        let mut replay = Replay::begun(id.clone(), Utc::now().into());
        end(&mut replay);
        replay.size_bytes = size;
        let entry = (replay, Bytes::from("forged"));
        forger.with(|played| played.replays.insert(id.clone(), entry));
    }
    let own = forger.records(&content(3));
    forger.ends(&own);
    keeper.collect(&forged).await;
    // What is another's is let alone, and what is its own comes in.
    assert!(forger.has(&kept) && forger.has(&recording) && !forger.has(&own));
    assert_eq!(forger.with(|played| played.fetches), 1);
    assert_eq!(keeper.content(&own).await, content(3));

    // Out of what a host has left, its own as well, which is kept already.
    let none = json!({"status": "finished", "size_bytes": 0}).to_string();
    leave(&keeper.left(), &kept, &[(".mp4", "forged")]);
    leave(&keeper.left(), &own, &[(".mp4", "forged")]);
    leave(&keeper.left(), &recording, &[(".json", &none)]);
    keeper.take_over().await;
    assert!(!keeper.left().exists());
    assert_eq!(keeper.content(&own).await, content(3));

    (keeper.project, keeper.browser) = owner;
    let after = [keeper.row(&kept).await, keeper.row(&recording).await];
    assert_eq!(before, after);
    assert_eq!(keeper.content(&kept).await, content(1));
    agent.ends(&recording);
    assert!(keeper.collect(&recorder).await);
    assert_eq!(keeper.content(&recording).await, content(2));
}

#[tokio::test]
async fn there_is_an_end_to_what_is_kept() {
    const EACH: u64 = 7 << 20;
    let agent = PlayedAgent::default();
    let keeper = Keeper::start().await.with_room(EACH).await;
    let recorder = agent.start().await;
    let ids: Vec<ReplayId> = (1..=3).map(|byte| agent.records(&content(byte))).collect();
    assert!(keeper.replays.has_room().await.unwrap());
    agent.ends(&ids[0]);
    assert!(!keeper.collect(&recorder).await);
    assert!(!keeper.replays.has_room().await.unwrap());
    // What was under way is kept, but for what is far too much: that stays where it is.
    agent.ends(&ids[1]);
    agent.ends(&ids[2]);
    assert!(!keeper.collect(&recorder).await);
    assert_eq!(keeper.content(&ids[1]).await, content(2));
    assert!(agent.has(&ids[2]) && !keeper.blob(&ids[2]).exists());
    assert_eq!(keeper.row(&ids[2]).await.state, Where::Finished);
    // With its host it goes.
    leave(&keeper.left(), &ids[2], &[(".mp4", "a little")]);
    keeper.take_over().await;
    let row = keeper.row(&ids[2]).await;
    let reason = Some(ReplayEndReason::Lost);
    assert_eq!((row.state, row.end.reason), (Where::Lost, reason));
    assert!(!keeper.left().exists() && !keeper.blob(&ids[2]).exists());
}

#[tokio::test]
async fn a_number_that_cannot_be_holds_nothing_up() {
    let (keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let later = Utc::now() + chrono::TimeDelta::days(10_000);
    let (strange, plain) = (agent.records(&content(1)), agent.records(&content(2)));
    agent.ends(&strange);
    agent.ends(&plain);
    agent.with(|played| {
        let (replay, _) = played.replays.get_mut(&strange).unwrap();
        replay.started_at = later.into();
        replay.finished_at = Some(later.into());
        replay.duration_ms = Some(u64::MAX);
        replay.size_bytes = Some(u64::MAX);
    });
    let look = keeper
        .replays
        .look(&keeper.project, &keeper.browser, &recorder);
    assert!(look.await.unwrap());
    assert_eq!(keeper.row(&plain).await.state, Where::Finished);

    let left = ReplayId::generate();
    let notes = json!({
        "started_at": later, "finished_at": later, "duration_ms": u64::MAX, "size_bytes": u64::MAX,
    });
    let files = [(".json", &notes.to_string()[..]), (".mp4", "whole")];
    leave(&keeper.left(), &left, &files);
    assert!(keeper.collect(&recorder).await);
    keeper.take_over().await;
    for id in [&strange, &left] {
        let row = keeper.row(id).await;
        assert_eq!(row.state, Where::Kept);
        assert_eq!(row.end.duration_ms, Some(i64::MAX as u64));
        assert!(row.started_at <= row.end.finished_at.unwrap());
        assert!(row.end.finished_at.unwrap() <= Utc::now());
    }
}

#[tokio::test]
async fn what_cannot_be_taken_over_holds_up_nothing_else() {
    let keeper = Keeper::start().await;
    let (refused, other) = (ReplayId::generate(), ReplayId::generate());
    for id in [&refused, &other] {
        leave(&keeper.left(), id, &[(".mp4", "whole")]);
    }
    keeper
        .sql(&format!(
            "CREATE TRIGGER refuse BEFORE UPDATE ON replays WHEN NEW.id = '{refused}' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .await;
    let taking = keeper.replays.take_over(keeper.browser.clone());
    until("the other is kept", async || {
        let row = keeper.store.find_replay(&other).await.unwrap()?;
        (row.state == Where::Kept).then_some(())
    })
    .await;
    assert!(keeper.left().join(format!("{refused}.mp4")).exists());
    keeper.sql("DROP TRIGGER refuse").await;
    in_time("it is taken over", taking).await.unwrap();
    assert_eq!(keeper.content(&refused).await, b"whole");
    assert!(!keeper.left().exists());
}

#[tokio::test]
async fn what_cannot_be_taken_over_is_tried_again_and_nothing_is_removed_meanwhile() {
    let keeper = Keeper::start().await;
    let id = ReplayId::generate();
    leave(&keeper.left(), &id, &[(".mp4", "whole")]);
    // The store's folder cannot be made where a file has its name.
    let in_the_way = keeper.folder.path().join("blobs/replays");
    fs::write(&in_the_way, "").unwrap();
    let taking = keeper.replays.take_over(keeper.browser.clone());
    until("it is known", async || {
        let row = keeper.store.find_replay(&id).await.unwrap()?;
        (row.state == Where::Finished).then_some(())
    })
    .await;
    assert!(keeper.left().join(format!("{id}.mp4")).exists());
    fs::remove_file(&in_the_way).unwrap();
    in_time("it is taken over", taking).await.unwrap();
    assert_eq!(keeper.content(&id).await, b"whole");
    assert!(!keeper.left().exists());
}

#[tokio::test]
async fn a_start_settles_what_a_killed_one_has_left_half_done() {
    let (mut keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let (kept, gone, open) = (
        agent.records(&content(1)),
        agent.records(&content(2)),
        agent.records(&content(3)),
    );
    agent.ends(&kept);
    agent.ends(&gone);
    keeper.collect(&recorder).await;
    fs::remove_file(keeper.blob(&gone)).unwrap();
    let orphan = ReplayId::generate();
    fs::write(keeper.blob(&orphan), "without a record").unwrap();
    fs::write(
        format!("{}#1", keeper.blob(&kept).display()),
        "half written",
    )
    .unwrap();
    let late = ReplayId::generate();
    leave(&keeper.left(), &late, &[(".part.mp4", "part")]);

    keeper.again().await;
    assert!(!keeper.blob(&orphan).exists());
    assert_eq!(keeper.row(&kept).await.state, Where::Kept);
    assert_eq!(keeper.content(&kept).await, content(1));
    let lost = keeper.row(&gone).await;
    assert_eq!(
        (lost.state, lost.end.reason),
        (Where::Lost, Some(ReplayEndReason::Lost))
    );
    until("what was left is taken over", async || {
        let row = keeper.row(&open).await;
        (row.state == Where::Lost && !keeper.left().exists()).then_some(())
    })
    .await;
    assert_eq!(keeper.content(&late).await, b"part");
    assert_eq!(
        fs::read_dir(keeper.blob(&kept).parent().unwrap())
            .unwrap()
            .count(),
        2
    );
}

#[tokio::test]
async fn replays_that_were_kept_long_enough_are_removed() {
    let (mut keeper, agent) = (Keeper::start().await, PlayedAgent::default());
    let recorder = agent.start().await;
    let (old, new, recording) = (
        agent.records(&content(1)),
        agent.records(&content(2)),
        agent.records(&content(3)),
    );
    agent.ends(&old);
    agent.ends(&new);
    keeper.collect(&recorder).await;
    keeper
        .sql(&format!(
            "UPDATE replays SET finished_at = finished_at - 86400000, started_at = 0 WHERE id IN ('{old}', '{recording}')"
        ))
        .await;
    let long_ago = Duration::from_secs(60 * 60);
    keeper.replays = service(&keeper.folder, &keeper.store, ROOM, &keeper.shutdown);
    let purging = tokio::spawn(keeper.replays.clone().purge(long_ago));
    until("the old one is removed", async || {
        let found = keeper.store.find_replay(&old).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
    assert!(!keeper.blob(&old).exists());
    assert_eq!(keeper.content(&new).await, content(2));
    assert_eq!(keeper.row(&recording).await.state, Where::Recording);
    keeper.shutdown.stop();
    in_time("it ends with the server", purging).await.unwrap();
}
