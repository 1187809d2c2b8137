//! `/replays`

use std::{
    fs::Permissions,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Instant,
};

use berth::api::ids::ReplayId;
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    painter::{BLUE, GREEN, Painter, RED, region, screenshot},
    processes,
    requests::wrong_fields,
    sound::SoundServer,
    video::{Video, complete_fragments, first_sound, frame_count, loudness, stream_count},
    wait::{in_time, until},
};

/// The position at which the video's colour is sampled, away from the cursor's corner.
const SPOT: (u32, u32) = (200, 150);
const BLACK: u32 = 0;
const WHITE: u32 = 0x00ff_ffff;

/// Returns an agent without a browser: only the root window is visible.
pub(super) fn bare_screen() -> Start {
    Start::on_screen().with(["--chromium", "/bin/true", "--viewport", "320x240"])
}

pub(super) async fn record(agent: &TestAgent, body: Value) -> String {
    let replay = agent.ok(agent.post("/replays").json(&body)).await;
    assert_eq!(replay["status"], "recording", "{replay}");
    replay["replay_id"].as_str().unwrap().to_owned()
}

async fn stop(agent: &TestAgent, id: &str) -> Value {
    agent.ok(agent.post(&format!("/replays/{id}/stop"))).await
}

async fn seconds_since(begin: Instant, seconds: f64) {
    until("time to pass", async || {
        (begin.elapsed().as_secs_f64() >= seconds).then_some(())
    })
    .await;
}

/// Waits until the replay is finished.
async fn wait_until_finished(agent: &TestAgent, id: &str) -> Value {
    until("the end of the recording", async || {
        let list = agent.ok(agent.get("/replays")).await;
        let mut replays = list.as_array().unwrap().iter();
        let replay = replays.find(|replay| replay["replay_id"] == id).unwrap();
        (replay["status"] == "finished").then(|| replay.clone())
    })
    .await
}

async fn download(agent: &TestAgent, id: &str) -> Vec<u8> {
    let request = agent.get(&format!("/replays/{id}"));
    let response = in_time("a video", request.send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "video/mp4");
    in_time("its content", response.bytes())
        .await
        .unwrap()
        .into()
}

/// Downloads and decodes a finished replay.
async fn video(agent: &TestAgent, replay: &Value) -> Video {
    let bytes = download(agent, replay["replay_id"].as_str().unwrap()).await;
    assert_eq!(replay["size_bytes"], bytes.len());
    let video = Video::of_bytes(&bytes, SPOT.0, SPOT.1);
    let reported = replay["duration_ms"].as_f64().unwrap() / 1000.0;
    assert!(
        (video.duration - reported).abs() < 0.1,
        "{replay} {video:?}"
    );
    video
}

/// Returns the size of the recorded file so far.
fn recorded_bytes(agent: &TestAgent, id: &str) -> u64 {
    let part = agent.state_dir().join(format!("replays/1/{id}.part.mp4"));
    std::fs::metadata(part).map_or(0, |part| part.len())
}

/// Waits until the screen is in the file. A frame is written once the next one arrives, so the
/// pointer is moved until there are some.
pub(super) async fn wait_until_recorded(agent: &TestAgent, id: &str, painter: &Painter) {
    let mut moves = [(0, 0), (40, 40)].into_iter().cycle();
    for _ in 0..3 {
        let before = recorded_bytes(agent, id);
        until("more to be recorded", async || {
            let (x, y) = moves.next()?;
            painter.point_at(x, y);
            (recorded_bytes(agent, id) > before).then_some(())
        })
        .await;
    }
    painter.point_at(0, 0);
}

/// Waits until the last change has been captured. The encoder writes a frame when the next one
/// arrives, and one from before the change may be on its way.
async fn wait_until_captured(agent: &TestAgent, id: &str) {
    for _ in 0..2 {
        let before = recorded_bytes(agent, id);
        until("more to be recorded", async || {
            (recorded_bytes(agent, id) > before).then_some(())
        })
        .await;
    }
}

/// Returns the process id of a recording's encoder.
fn encoder(agent: &TestAgent, id: &str) -> u32 {
    let processes = processes::naming(&agent.state_dir());
    let encoder = processes
        .iter()
        .find(|process| process.command.contains("pipe:0") && process.command.contains(id));
    encoder.expect("an encoder").pid
}

/// Keeps the encoder busy until the recording has ended.
async fn wait_until_finished_under_load(agent: &TestAgent, id: &str, painter: &Painter) -> Value {
    let mut seed = 0_u8;
    until("the end of the recording", async || {
        seed = seed.wrapping_add(1);
        painter.noise(seed);
        let list = agent.ok(agent.get("/replays")).await;
        let mut replays = list.as_array().unwrap().iter();
        let replay = replays.find(|replay| replay["replay_id"] == id).unwrap();
        (replay["status"] == "finished").then(|| replay.clone())
    })
    .await
}

/// Plays the videos in Chromium and seeks in them. Each must be 320 pixels wide.
async fn chromium_plays(agent: &TestAgent, videos: &[&Path]) {
    // Chromium's user cannot read the agent's own files.
    let public = TempDir::new().unwrap();
    std::fs::set_permissions(public.path(), Permissions::from_mode(0o755)).unwrap();
    for video in videos {
        let copy = public.path().join("video.mp4");
        std::fs::copy(video, &copy).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
        let url = format!("file://{}", copy.display());
        let request = agent.put("/chromium/start_url").json(&json!({"url": url}));
        agent.ok(request).await;
        let mut page = Page::of(agent).await;
        let playing = "document.querySelector('video')?.readyState ?? 0";
        page.until(playing, |state| state.as_u64() >= Some(2)).await;
        let seek = "new Promise(done => { const v = document.querySelector('video'); v.onseeked = () => done(v.videoWidth); v.pause(); v.currentTime = 0.5 })";
        assert_eq!(page.evaluate(seek).await, 320);
    }
}

/// Plays a video in a new browser; see [`chromium_plays`].
async fn new_browser_plays(video: &Path) {
    let agent = Start::headless().ready().await;
    chromium_plays(&agent, &[video]).await;
    agent.stop().await;
}

/// Downloads a replay to a file.
async fn downloaded(agent: &TestAgent, id: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("video.mp4");
    std::fs::write(&path, download(agent, id).await).unwrap();
    (folder, path)
}

#[tokio::test]
async fn recording_shows_changes_at_their_times() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(RED);
    let requested_at = Instant::now();
    let id = record(&agent, json!({})).await;
    let started_at = Instant::now();
    seconds_since(started_at, 1.0).await;
    let green_after = started_at.elapsed().as_secs_f64();
    painter.fill_all(GREEN);
    wait_until_captured(&agent, &id).await;
    seconds_since(started_at, 2.5).await;
    let blue_after = started_at.elapsed().as_secs_f64();
    painter.fill_all(BLUE);
    wait_until_captured(&agent, &id).await;
    seconds_since(started_at, 4.0).await;
    let at_least = started_at.elapsed().as_secs_f64();
    let replay = stop(&agent, &id).await;
    let at_most = requested_at.elapsed().as_secs_f64();
    assert_eq!(replay["status"], "finished");
    assert_eq!(replay["end_reason"], "stopped");

    let video = video(&agent, &replay).await;
    assert_eq!((video.width, video.height), (320, 240));
    let off = 0.05;
    assert!(video.duration > at_least - off, "{at_least} {video:?}");
    assert!(video.duration < at_most + off, "{at_most} {video:?}");
    let first = |color| video.first(color).unwrap_or_else(|| panic!("{video:?}"));
    assert_eq!(first(RED), 0.0);
    assert!(first(GREEN) > green_after - off, "{green_after} {video:?}");
    assert!(first(BLUE) > blue_after - off, "{blue_after} {video:?}");
    // It was shown only until the next colour.
    let lead = (started_at - requested_at).as_secs_f64();
    assert!(
        first(GREEN) < blue_after + lead + off,
        "{blue_after} {video:?}"
    );
    // A still screen takes few frames: one after each change, and one repetition.
    assert!(video.frames.len() < 20, "{video:?}");
    // Stopping again changes nothing.
    assert_eq!(stop(&agent, &id).await, replay);
    agent.stop().await;
}

#[tokio::test]
async fn frames_are_not_timestamped_late() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(RED);
    let requested_at = Instant::now();
    let id = record(&agent, json!({"framerate": 60})).await;
    let mut by = Vec::new();
    for color in [GREEN, BLUE] {
        painter.fill_all(color);
        wait_until_recorded(&agent, &id, &painter).await;
        by.push((color, requested_at.elapsed().as_secs_f64()));
    }
    let replay = stop(&agent, &id).await;
    let video = video(&agent, &replay).await;
    for (color, by) in by {
        let at = video.first(color).unwrap_or_else(|| panic!("{video:?}"));
        assert!(at < by, "{color:x} at {at}, there by {by}: {video:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn frame_rate_is_limited() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    // The second interval is that of the default frame rate.
    for (request, interval) in [(json!({"framerate": 4}), 0.25), (json!({}), 0.1)] {
        // On a slow machine a recording may have fewer frames than requested.
        until("a recording at its frame rate", async || {
            let id = record(&agent, request.clone()).await;
            let started_at = Instant::now();
            let mut colors = [RED, GREEN, BLUE].into_iter().cycle();
            until("some frames", async || {
                painter.fill_all(colors.next()?);
                (started_at.elapsed().as_secs_f64() > 20.0 * interval).then_some(())
            })
            .await;
            let replay = stop(&agent, &id).await;
            let video = video(&agent, &replay).await;
            // The last frame marks the end, at any time.
            let times: Vec<f64> = video.frames.iter().map(|frame| frame.at).collect();
            let pauses = times[..times.len() - 1].windows(2);
            let least = pauses.map(|pair| pair[1] - pair[0]).fold(1.0, f64::min);
            let off = 0.005;
            assert!(least > interval - off, "{least} of {interval}: {video:?}");
            (least < interval * 2.0).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn cursor_is_recorded() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    let id = record(&agent, json!({"framerate": 30})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    painter.point_at(SPOT.0 as i16 + 4, SPOT.1 as i16 + 4);
    let before = recorded_bytes(&agent, &id);
    until("a frame of it", async || {
        (recorded_bytes(&agent, &id) > before).then_some(())
    })
    .await;
    let replay = stop(&agent, &id).await;
    let video = video(&agent, &replay).await;
    let last = video.frames.last().unwrap();
    assert_ne!(last.color, video.frames[0].color, "{video:?}");
    agent.stop().await;
}

#[tokio::test]
async fn sound_is_recorded_if_requested() {
    // The first click prepares the sound. The second one makes the page white and loud at once.
    const FLASH: &str = "<title>flash</title><body style='background: black'><script>\
        let a; \
        onclick = async () => { \
          if (!a) { a = new AudioContext(); await a.resume(); document.title = a.state; return } \
          const o = a.createOscillator(); o.connect(a.destination); o.start(); \
          document.body.style.background = 'white'; document.title = 'loud' \
        }</script>";
    let sound = SoundServer::start().await;
    // An encoder that starts to record sound long after the first frame.
    let programs = TempDir::new().unwrap();
    let slow = programs.path().join("slow-ffmpeg");
    std::fs::write(&slow, "#!/bin/sh\nsleep 2\nexec ffmpeg \"$@\"\n").unwrap();
    std::fs::set_permissions(&slow, Permissions::from_mode(0o755)).unwrap();
    let agent = Start::on_screen()
        .with(["--pulse-server", &sound.address()])
        .with(["--ffmpeg", slow.to_str().unwrap()])
        .with(["--viewport", "640x480"])
        .ready()
        .await;
    let painter = Painter::on(&agent).await;
    let mut page = Page::of(&agent).await;
    page.show(FLASH).await;
    page.ready().await;
    let click = async |page: &mut Page, title: &str| {
        let at = json!({"x": 100, "y": 300});
        agent
            .ok(agent.post("/computer/click_mouse").json(&at))
            .await;
        page.until("document.title", |found| found == title).await;
    };
    click(&mut page, "running").await;
    let loud = record(&agent, json!({"record_audio": true, "framerate": 30})).await;
    let mute = record(&agent, json!({})).await;
    let started_at = Instant::now();
    for id in [&loud, &mute] {
        wait_until_recorded(&agent, id, &painter).await;
    }
    click(&mut page, "loud").await;
    let flashed = started_at.elapsed().as_secs_f64();
    seconds_since(started_at, flashed + 1.5).await;
    for (id, streams) in [(&loud, 2), (&mute, 1)] {
        let replay = stop(&agent, id).await;
        assert_eq!(replay["end_reason"], "stopped", "{}", agent.log());
        assert!(replay["duration_ms"].as_u64() >= Some(1900), "{replay}");
        let (_folder, path) = downloaded(&agent, id).await;
        assert_eq!(stream_count(&path), streams);
        if streams == 2 {
            assert!(loudness(&path) > -40.0);
            let video = Video::of(&path, SPOT.0, SPOT.1);
            let (seen_at, sound_at) = (video.first(WHITE).unwrap(), first_sound(&path));
            println!("image at {seen_at}, sound at {sound_at}");
            assert!(
                (seen_at - sound_at).abs() < 1.0,
                "{seen_at} {sound_at} {video:?}"
            );
        }
    }

    // The recording continues without sound if the sound server is lost.
    let loud = record(&agent, json!({"record_audio": true})).await;
    wait_until_recorded(&agent, &loud, &painter).await;
    sound.stop().await;
    wait_until_recorded(&agent, &loud, &painter).await;
    let replay = stop(&agent, &loud).await;
    assert_eq!(replay["end_reason"], "stopped", "{}", agent.log());
    let (_folder, path) = downloaded(&agent, &loud).await;
    assert_eq!(stream_count(&path), 2);
    agent.stop().await;
}

#[tokio::test]
async fn finished_replay_supports_ranges_and_deletion() {
    let agent = bare_screen().listening().await;
    Painter::on(&agent).await;
    let id = record(&agent, json!({"framerate": 60})).await;
    let path = format!("/replays/{id}");
    let early = in_time("an answer", agent.get(&path).send()).await.unwrap();
    assert_eq!(early.status(), StatusCode::ACCEPTED);
    assert_eq!(early.headers()["retry-after"], "5");
    let (status, answer) = agent.answer(agent.request(Method::DELETE, &path)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");

    stop(&agent, &id).await;
    let whole = download(&agent, &id).await;
    // The index is at the start, for streaming.
    let offset = |name: &[u8]| whole.windows(4).position(|found| found == name).unwrap();
    assert!(offset(b"moov") < offset(b"mdat"));
    let request_range = async |method: Method, headers: &[(&'static str, String)]| {
        let mut request = agent.request(method, &path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = in_time("an answer", request.send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = in_time("a body", response.bytes()).await.unwrap();
        (status, headers, body)
    };
    let (status, headers, body) = request_range(Method::HEAD, &[]).await;
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(headers["content-length"], whole.len().to_string());
    assert_eq!(headers["accept-ranges"], "bytes");
    let etag = headers["etag"].to_str().unwrap().to_owned();
    let range = |range: &str| ("range", range.to_owned());
    let (status, headers, body) = request_range(Method::GET, &[range("bytes=10-19")]).await;
    assert_eq!((status, &body[..]), (206, &whole[10..20]));
    let reported = format!("bytes 10-19/{}", whole.len());
    assert_eq!(headers["content-range"], reported);
    let (status, _, body) = request_range(Method::GET, &[range("bytes=-5")]).await;
    assert_eq!((status, &body[..]), (206, &whole[whole.len() - 5..]));
    let beyond = format!("bytes={}-", whole.len());
    let (status, headers, _) = request_range(Method::GET, &[range(&beyond)]).await;
    assert_eq!(status, 416);
    assert_eq!(headers["content-range"], format!("bytes */{}", whole.len()));
    let (status, ..) = request_range(Method::GET, &[range("bytes=0-0"), ("if-range", etag)]).await;
    assert_eq!(status, 206);
    let other = ("if-range", "\"other\"".to_owned());
    let (status, _, body) = request_range(Method::GET, &[range("bytes=0-0"), other]).await;
    assert_eq!((status, body.len()), (200, whole.len()));

    let (status, _) = agent.answer(agent.request(Method::DELETE, &path)).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(agent.ok(agent.get("/replays")).await, json!([]));
    for (method, path) in [
        (Method::GET, &path),
        (Method::DELETE, &path),
        (Method::POST, &format!("{path}/stop")),
        (Method::GET, &"/replays/no-id".to_owned()),
    ] {
        let (status, answer) = agent.answer(agent.request(method, path)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {answer}");
    }
    let left = std::fs::read_dir(agent.state_dir().join("replays/1")).unwrap();
    assert_eq!(left.count(), 0);
    agent.stop().await;
}

#[tokio::test]
async fn concurrent_recordings_are_limited_to_two() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let first = record(&agent, json!({})).await;
    let second = record(&agent, json!({"framerate": 1})).await;
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    // No sound server is configured.
    let loud = agent.post("/replays").json(&json!({"record_audio": true}));
    let (status, answer) = agent.answer(loud).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("no_audio"))
    );
    let list = agent.ok(agent.get("/replays")).await;
    let ids: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["replay_id"])
        .collect();
    assert_eq!(ids, [&first, &second]);
    for id in [&first, &second] {
        let replay = stop(&agent, id).await;
        assert_eq!(video(&agent, &replay).await.first(GREEN), Some(0.0));
    }
    let third = record(&agent, json!({})).await;
    stop(&agent, &third).await;
    agent.stop().await;
}

#[tokio::test]
async fn recording_ends_at_its_limits() {
    let agent = bare_screen()
        .with(["--replay-mb", "1", "--replays-mb", "1"])
        .listening()
        .await;
    let painter = Painter::on(&agent).await;
    let short = record(&agent, json!({"max_duration_in_seconds": 1})).await;
    let replay = wait_until_finished(&agent, &short).await;
    assert_eq!(replay["end_reason"], "max_duration");
    let length = video(&agent, &replay).await.duration;
    // Without the limit it would not end.
    assert!((1.0..60.0).contains(&length), "{length}");

    let large = record(&agent, json!({"framerate": 60})).await;
    let replay = wait_until_finished_under_load(&agent, &large, &painter).await;
    assert_eq!(replay["end_reason"], "max_size");
    // The rewritten file is smaller than the limit, as fragments have overhead.
    assert!(replay["size_bytes"].as_u64() > Some(900_000), "{replay}");
    video(&agent, &replay).await;
    // The stored recording exhausts the quota.
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    agent
        .ok(agent.request(Method::DELETE, &format!("/replays/{large}")))
        .await;
    let next = record(&agent, json!({})).await;
    stop(&agent, &next).await;
    agent.stop().await;

    let agent = bare_screen()
        .with(["--replay-seconds", "1"])
        .listening()
        .await;
    Painter::on(&agent).await;
    let unbounded = record(&agent, json!({})).await;
    let replay = wait_until_finished(&agent, &unbounded).await;
    assert_eq!(replay["end_reason"], "max_duration");
    agent.stop().await;
}

#[tokio::test]
async fn recording_is_playable_after_the_encoder_was_killed() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let id = record(&agent, json!({})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    processes::signal(encoder(&agent, &id), Signal::SIGKILL);
    let replay = wait_until_finished(&agent, &id).await;
    assert_eq!(replay["end_reason"], "encoder_failed");
    assert_eq!(video(&agent, &replay).await.first(GREEN), Some(0.0));
    let (_folder, path) = downloaded(&agent, &id).await;
    new_browser_plays(&path).await;
    // The permit is free again.
    let next = record(&agent, json!({})).await;
    assert_eq!(stop(&agent, &next).await["end_reason"], "stopped");
    agent.stop().await;
}

#[tokio::test]
async fn recording_is_playable_before_and_after_recovery_from_a_killed_agent() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let id = record(&agent, json!({})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    painter.fill_all(RED);
    wait_until_recorded(&agent, &id, &painter).await;
    let folder = agent.kill().await;
    // A copy of the file before recovery.
    let left = folder.path().join(format!("state/replays/1/{id}.part.mp4"));
    let copy = TempDir::new().unwrap();
    let copied = copy.path().join("left.mp4");
    std::fs::copy(&left, &copied).unwrap();
    let raw = Video::of(&copied, SPOT.0, SPOT.1);
    assert_eq!(raw.first(GREEN), Some(0.0));
    assert!(raw.first(RED).is_some(), "{raw:?}");

    let agent = TestAgent::again(folder).with(["--headless"]).ready().await;
    let replay = wait_until_finished(&agent, &id).await;
    assert_eq!(replay["end_reason"], "agent_ended");
    let video = video(&agent, &replay).await;
    assert!(video.first(RED).is_some(), "{video:?}");
    // Chromium plays both.
    let finished = agent.state_dir().join(format!("replays/1/{id}.mp4"));
    chromium_plays(&agent, &[&copied, &finished]).await;
    agent.stop().await;
}

#[tokio::test]
async fn recovered_recording_keeps_its_times() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    let id = record(&agent, json!({})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    let replay = stop(&agent, &id).await;
    let folder = agent.kill().await;
    // The state between publishing the video and writing the metadata.
    let started_at =
        json!({"replay_id": id, "started_at": replay["started_at"], "status": "recording"});
    let metadata_path = folder.path().join(format!("state/replays/1/{id}.json"));
    std::fs::write(metadata_path, started_at.to_string()).unwrap();
    let killed = chrono::Utc::now();

    let agent = TestAgent::again(folder)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    let reported = wait_until_finished(&agent, &id).await;
    assert_eq!(reported["end_reason"], "agent_ended");
    for field in ["started_at", "duration_ms", "size_bytes"] {
        assert_eq!(reported[field], replay[field], "{reported} {replay}");
    }
    let finished: chrono::DateTime<chrono::Utc> =
        reported["finished_at"].as_str().unwrap().parse().unwrap();
    assert!(finished <= killed, "{reported} {killed}");
    agent.stop().await;
}

#[tokio::test]
async fn frozen_encoder_is_killed_and_its_file_is_playable() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let ids = [
        record(&agent, json!({"framerate": 30})).await,
        record(&agent, json!({"framerate": 30})).await,
    ];
    for id in &ids {
        wait_until_recorded(&agent, id, &painter).await;
    }
    let encoders = ids.each_ref().map(|id| encoder(&agent, id));
    for encoder in encoders {
        processes::stop(encoder).await;
    }
    let [stopped, failed] = &ids;
    let (stopped, failed) = tokio::join!(
        stop(&agent, stopped),
        wait_until_finished_under_load(&agent, failed, &painter),
    );
    for (replay, reason) in [(stopped, "stopped"), (failed, "encoder_failed")] {
        assert_eq!(replay["end_reason"], reason, "{}", agent.log());
        assert_eq!(video(&agent, &replay).await.first(GREEN), Some(0.0));
    }
    for encoder in encoders {
        assert!(!processes::is_alive(encoder));
    }
    agent.stop().await;
}

#[tokio::test]
async fn recording_ends_when_the_screen_is_lost() {
    let programs = TempDir::new().unwrap();
    let server = programs.path().join("Xvfb");
    symlink("/usr/bin/Xvfb", &server).unwrap();
    let agent = bare_screen()
        .with(["--xvfb", server.to_str().unwrap()])
        .listening()
        .await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let id = record(&agent, json!({})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    // Prevents a restart.
    std::fs::remove_file(&server).unwrap();
    let screen = agent.display_pid().await;
    processes::signal(screen, Signal::SIGKILL);
    let replay = wait_until_finished(&agent, &id).await;
    assert_eq!(replay["end_reason"], "screen_ended", "{}", agent.log());
    assert_eq!(video(&agent, &replay).await.first(GREEN), Some(0.0));
    agent.stop().await;
}

#[tokio::test]
async fn stored_recordings_are_limited() {
    let agent = bare_screen().listening().await;
    Painter::on(&agent).await;
    let first = record(&agent, json!({})).await;
    stop(&agent, &first).await;
    let folder = agent.stop_keeping().await;
    let metadata_path = |id: &str| folder.path().join(format!("state/replays/1/{id}.json"));
    let metadata = std::fs::read_to_string(metadata_path(&first)).unwrap();
    for _ in 1..1000 {
        let id = ReplayId::generate();
        std::fs::write(
            metadata_path(id.as_str()),
            metadata.replace(&first, id.as_str()),
        )
        .unwrap();
    }

    let agent = TestAgent::again(folder)
        .with(["--chromium", "/bin/true", "--viewport", "320x240"])
        .listening()
        .await;
    Painter::on(&agent).await;
    let list = agent.ok(agent.get("/replays")).await;
    assert_eq!(list.as_array().unwrap().len(), 1000);
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("limit_exceeded"))
    );
    agent
        .ok(agent.request(Method::DELETE, &format!("/replays/{first}")))
        .await;
    let next = record(&agent, json!({})).await;
    stop(&agent, &next).await;
    agent.stop().await;
}

#[tokio::test]
async fn recording_is_playable_after_the_disk_was_full() {
    let agent = bare_screen().with_room_for_replays(4096).listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    // With free space, a failure of the encoder has another reason.
    let killed = record(&agent, json!({})).await;
    processes::signal(encoder(&agent, &killed), Signal::SIGKILL);
    let replay = wait_until_finished(&agent, &killed).await;
    assert_eq!(replay["end_reason"], "encoder_failed", "{}", agent.log());

    let id = record(&agent, json!({"framerate": 60})).await;
    let replay = wait_until_finished_under_load(&agent, &id, &painter).await;
    assert_eq!(replay["end_reason"], "disk_full", "{}", agent.log());
    let (_folder, path) = downloaded(&agent, &id).await;
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(replay["size_bytes"], bytes.len());
    assert!(bytes.len() > 3_000_000, "{}", bytes.len());
    // Up to where it is cut off.
    let (parts, frames) = (complete_fragments(&bytes), frame_count(&path));
    assert!(parts > 1 && frames >= parts, "{frames} of {parts}");
    new_browser_plays(&path).await;
    agent.stop().await;
}

#[tokio::test]
async fn shutdown_finishes_recordings() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    let id = record(&agent, json!({})).await;
    let folder = agent.stop_keeping().await;
    let file = |ending: &str| folder.path().join(format!("state/replays/1/{id}{ending}"));
    let metadata = std::fs::read(file(".json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    assert_eq!(metadata["status"], "finished", "{metadata}");
    assert_eq!(metadata["end_reason"], "agent_ended", "{metadata}");
    let video = Video::of(&file(".mp4"), SPOT.0, SPOT.1);
    assert_eq!(video.first(BLUE), Some(0.0));
    assert!(!file(".part.mp4").exists());
}

#[tokio::test]
async fn recording_continues_after_a_resize_and_on_a_new_screen() {
    const PAGE: &str = "<body style='background: lime'>";
    let agent = Start::on_screen()
        .with(["--viewport", "640x480"])
        .ready()
        .await;
    let painter = Painter::on(&agent).await;
    // The page is shown once the screen is green where only the page can be. A tab that is still
    // opening may show its initial page again.
    let green = async |(width, height): (u32, u32)| {
        until(&format!("the page on {width}x{height}"), async || {
            Page::of(&agent).await.show(PAGE).await;
            let spot = region(width / 2, height * 3 / 4, 1, 1);
            let picture = screenshot(&agent, &spot).await;
            (picture.at(0, 0) == GREEN).then_some(())
        })
        .await;
    };
    green((640, 480)).await;
    let id = record(&agent, json!({})).await;
    wait_until_recorded(&agent, &id, &painter).await;
    for (width, height) in [(321, 243), (1280, 720)] {
        let size = json!({"width": width, "height": height});
        agent.ok(agent.put("/display").json(&size)).await;
        green((width, height)).await;
        wait_until_recorded(&agent, &id, &painter).await;
    }
    // The recording continues when the browser dies.
    let chromium = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(chromium, Signal::SIGKILL);
    agent
        .chromium_when("another Chromium", |status| status["generation"] == 2)
        .await;
    green((1280, 720)).await;
    wait_until_recorded(&agent, &id, &painter).await;
    let screen = agent.display_pid().await;
    processes::signal(screen, Signal::SIGKILL);
    agent
        .chromium_when("one more", |status| status["generation"] == 3)
        .await;
    let painter = Painter::on(&agent).await;
    green((1280, 720)).await;
    wait_until_recorded(&agent, &id, &painter).await;
    let replay = stop(&agent, &id).await;
    assert_eq!(replay["end_reason"], "stopped");
    assert!(
        agent.log().contains("recording continues on a new screen"),
        "{}",
        agent.log()
    );

    let (_folder, path) = downloaded(&agent, &id).await;
    let (middle, border) = (Video::of(&path, 316, 296), Video::of(&path, 20, 240));
    assert_eq!((middle.width, middle.height), (640, 480));
    // The smaller screen is centred, surrounded by black.
    let mut frames = middle.frames.iter().zip(&border.frames);
    for border_color in [GREEN, BLACK, GREEN] {
        let found =
            frames.find(|(middle, border)| middle.shows(GREEN) && border.shows(border_color));
        assert!(found.is_some(), "{border_color:x} {middle:?} {border:?}");
    }
    assert!(middle.frames.last().unwrap().shows(GREEN), "{middle:?}");
    agent.stop().await;
}

#[tokio::test]
async fn impossible_recordings_are_rejected() {
    let agent = Start::without_browser().listening().await;
    for (body, fields) in [
        (
            json!({"framerate": 0, "max_duration_in_seconds": 86401, "record_audio": "yes"}),
            vec!["framerate", "max_duration_in_seconds", "record_audio"],
        ),
        (
            json!({"framerate": 61, "max_duration_in_seconds": 0}),
            vec!["framerate", "max_duration_in_seconds"],
        ),
        (json!({"framerate": 1.5}), vec!["framerate"]),
    ] {
        let (status, answer) = agent.answer(agent.post("/replays").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(wrong_fields(&answer), fields, "{body}");
    }
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("no_display"))
    );
    agent.stop().await;

    let agent = bare_screen()
        .with(["--pulse-server", "unix:/there/is/none"])
        .listening()
        .await;
    Painter::on(&agent).await;
    let loud = agent.post("/replays").json(&json!({"record_audio": true}));
    let (status, answer) = agent.answer(loud).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("no_audio"))
    );
    assert_eq!(agent.ok(agent.get("/replays")).await, json!([]));
    agent.stop().await;

    let nothing = TempDir::new().unwrap();
    let agent = bare_screen()
        .with(["--xvfb", "/usr/bin/Xvfb"])
        .with_programs_in(nothing.path())
        .listening()
        .await;
    Painter::on(&agent).await;
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(
        (status, &answer["code"]),
        (StatusCode::CONFLICT, &json!("no_encoder"))
    );
    agent.stop().await;
}
