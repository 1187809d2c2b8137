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

/// Where the colour of a film is looked at: away from the cursor's corner.
const SPOT: (u32, u32) = (200, 150);
const BLACK: u32 = 0;
const WHITE: u32 = 0x00ff_ffff;

/// Without a browser the root window is all there is to be seen.
fn bare_screen() -> Start {
    Start::on_screen().with(["--chromium", "/bin/true", "--viewport", "320x240"])
}

async fn record(agent: &TestAgent, body: Value) -> String {
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

/// The replay once it has ended.
async fn ended(agent: &TestAgent, id: &str) -> Value {
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
    let response = in_time("a film", request.send()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "video/mp4");
    in_time("its content", response.bytes())
        .await
        .unwrap()
        .into()
}

/// Looks at a finished replay as a client gets it.
async fn film(agent: &TestAgent, replay: &Value) -> Video {
    let bytes = download(agent, replay["replay_id"].as_str().unwrap()).await;
    assert_eq!(replay["size_bytes"], bytes.len());
    let film = Video::of_bytes(&bytes, SPOT.0, SPOT.1);
    let told = replay["duration_ms"].as_f64().unwrap() / 1000.0;
    assert!((film.duration - told).abs() < 0.1, "{replay} {film:?}");
    film
}

/// The size of what is recorded so far.
fn written(agent: &TestAgent, id: &str) -> u64 {
    let part = agent.state_dir().join(format!("replays/{id}.part.mp4"));
    std::fs::metadata(part).map_or(0, |part| part.len())
}

/// Until what is on the screen is in the file as well: a frame is there once the next one has come, so that the pointer moves until there are some.
async fn recorded(agent: &TestAgent, id: &str, painter: &Painter) {
    let mut moves = [(0, 0), (40, 40)].into_iter().cycle();
    for _ in 0..3 {
        let before = written(agent, id);
        until("more to be recorded", async || {
            let (x, y) = moves.next()?;
            painter.point_at(x, y);
            (written(agent, id) > before).then_some(())
        })
        .await;
    }
    painter.point_at(0, 0);
}

/// What encodes a recording.
fn encoder(agent: &TestAgent, id: &str) -> u32 {
    let processes = processes::naming(&agent.state_dir());
    let encoder = processes
        .iter()
        .find(|process| process.command.contains("pipe:0") && process.command.contains(id));
    encoder.expect("an encoder").pid
}

/// Keeps the encoder busy until the recording has ended.
async fn ended_with_noise(agent: &TestAgent, id: &str, painter: &Painter) -> Value {
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

/// Has a page of Chromium's play the films, each of which is 320 pixels wide, and go to another time in it.
async fn chromium_plays(agent: &TestAgent, films: &[&Path]) {
    for film in films {
        let url = format!("file://{}", film.display());
        let request = agent.put("/chromium/start_url").json(&json!({"url": url}));
        agent.ok(request).await;
        let mut page = Page::of(agent).await;
        let playing = "document.querySelector('video')?.readyState ?? 0";
        page.until(playing, |state| state.as_u64() >= Some(2)).await;
        let seek = "new Promise(done => { const v = document.querySelector('video'); v.onseeked = () => done(v.videoWidth); v.pause(); v.currentTime = 0.5 })";
        assert_eq!(page.evaluate(seek).await, 320);
    }
}

/// As [`chromium_plays`], in a browser for that alone.
async fn a_browser_plays(film: &Path) {
    let agent = Start::headless().ready().await;
    chromium_plays(&agent, &[film]).await;
    agent.stop().await;
}

/// Puts what a client gets of a replay into a file.
async fn downloaded(agent: &TestAgent, id: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("film.mp4");
    std::fs::write(&path, download(agent, id).await).unwrap();
    (folder, path)
}

#[tokio::test]
async fn a_recording_shows_what_changed_and_when() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(RED);
    let asked = Instant::now();
    let id = record(&agent, json!({})).await;
    let begun = Instant::now();
    seconds_since(begun, 1.0).await;
    let green_after = begun.elapsed().as_secs_f64();
    painter.fill_all(GREEN);
    seconds_since(begun, 2.5).await;
    let blue_after = begun.elapsed().as_secs_f64();
    painter.fill_all(BLUE);
    seconds_since(begun, 4.0).await;
    let at_least = begun.elapsed().as_secs_f64();
    let replay = stop(&agent, &id).await;
    let at_most = asked.elapsed().as_secs_f64();
    assert_eq!(replay["status"], "finished");
    assert_eq!(replay["end_reason"], "stopped");

    let film = film(&agent, &replay).await;
    assert_eq!((film.width, film.height), (320, 240));
    let off = 0.05;
    assert!(film.duration > at_least - off, "{at_least} {film:?}");
    assert!(film.duration < at_most + off, "{at_most} {film:?}");
    let first = |color| film.first(color).unwrap_or_else(|| panic!("{film:?}"));
    assert_eq!(first(RED), 0.0);
    assert!(first(GREEN) > green_after - off, "{green_after} {film:?}");
    assert!(first(BLUE) > blue_after - off, "{blue_after} {film:?}");
    // Before the next one was there, which it would not be seen after.
    let lead = (begun - asked).as_secs_f64();
    assert!(
        first(GREEN) < blue_after + lead + off,
        "{blue_after} {film:?}"
    );
    // A still screen takes hardly a frame: where something has changed, and a little later once more.
    assert!(film.frames.len() < 20, "{film:?}");
    // Stopping again changes nothing.
    assert_eq!(stop(&agent, &id).await, replay);
    agent.stop().await;
}

#[tokio::test]
async fn nothing_is_told_as_later_than_it_was_in_the_file() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(RED);
    let asked = Instant::now();
    let id = record(&agent, json!({"framerate": 60})).await;
    let mut by = Vec::new();
    for color in [GREEN, BLUE] {
        painter.fill_all(color);
        recorded(&agent, &id, &painter).await;
        by.push((color, asked.elapsed().as_secs_f64()));
    }
    let replay = stop(&agent, &id).await;
    let film = film(&agent, &replay).await;
    for (color, by) in by {
        let at = film.first(color).unwrap_or_else(|| panic!("{film:?}"));
        assert!(at < by, "{color:x} at {at}, there by {by}: {film:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn it_has_no_more_frames_than_it_may_however_much_changes() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    // The second is what it is where nothing is said.
    for (wishes, interval) in [(json!({"framerate": 4}), 0.25), (json!({}), 0.1)] {
        let id = record(&agent, wishes).await;
        let begun = Instant::now();
        let mut colors = [RED, GREEN, BLUE].into_iter().cycle();
        until("some frames", async || {
            painter.fill_all(colors.next()?);
            (begun.elapsed().as_secs_f64() > 30.0 * interval).then_some(())
        })
        .await;
        let replay = stop(&agent, &id).await;
        let film = film(&agent, &replay).await;
        // The last one tells of the end, whenever that is.
        let times: Vec<f64> = film.frames.iter().map(|frame| frame.at).collect();
        let pauses = times[..times.len() - 1].windows(2);
        let least = pauses.map(|pair| pair[1] - pair[0]).fold(1.0, f64::min);
        let off = 0.005;
        assert!(least > interval - off, "{least} of {interval}: {film:?}");
        assert!(least < interval * 2.0, "{least} of {interval}: {film:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn the_cursor_is_recorded_where_it_goes() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    let id = record(&agent, json!({"framerate": 30})).await;
    recorded(&agent, &id, &painter).await;
    painter.point_at(SPOT.0 as i16 + 4, SPOT.1 as i16 + 4);
    let before = written(&agent, &id);
    until("a frame of it", async || {
        (written(&agent, &id) > before).then_some(())
    })
    .await;
    let replay = stop(&agent, &id).await;
    let film = film(&agent, &replay).await;
    let last = film.frames.last().unwrap();
    assert_ne!(last.color, film.frames[0].color, "{film:?}");
    agent.stop().await;
}

#[tokio::test]
async fn what_a_page_plays_is_heard_where_that_is_wanted() {
    // At the first click the sound is made ready; at the second one the page is white and loud at once.
    const FLASH: &str = "<title>flash</title><body style='background: black'><script>\
        let a; \
        onclick = async () => { \
          if (!a) { a = new AudioContext(); await a.resume(); document.title = a.state; return } \
          const o = a.createOscillator(); o.connect(a.destination); o.start(); \
          document.body.style.background = 'white'; document.title = 'loud' \
        }</script>";
    let sound = SoundServer::start().await;
    // An encoder that begins to listen long after the first frame.
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
    let begun = Instant::now();
    for id in [&loud, &mute] {
        recorded(&agent, id, &painter).await;
    }
    click(&mut page, "loud").await;
    let flashed = begun.elapsed().as_secs_f64();
    seconds_since(begun, flashed + 1.5).await;
    for (id, streams) in [(&loud, 2), (&mute, 1)] {
        let replay = stop(&agent, id).await;
        assert_eq!(replay["end_reason"], "stopped", "{}", agent.log());
        assert!(replay["duration_ms"].as_u64() >= Some(1900), "{replay}");
        let (_folder, path) = downloaded(&agent, id).await;
        assert_eq!(stream_count(&path), streams);
        if streams == 2 {
            assert!(loudness(&path) > -40.0);
            let film = Video::of(&path, SPOT.0, SPOT.1);
            let (seen, heard) = (film.first(WHITE).unwrap(), first_sound(&path));
            println!("seen at {seen}, heard at {heard}");
            assert!((seen - heard).abs() < 1.0, "{seen} {heard} {film:?}");
        }
    }

    // Without its sound server it goes on, silent.
    let loud = record(&agent, json!({"record_audio": true})).await;
    recorded(&agent, &loud, &painter).await;
    sound.stop().await;
    recorded(&agent, &loud, &painter).await;
    let replay = stop(&agent, &loud).await;
    assert_eq!(replay["end_reason"], "stopped", "{}", agent.log());
    let (_folder, path) = downloaded(&agent, &loud).await;
    assert_eq!(stream_count(&path), 2);
    agent.stop().await;
}

#[tokio::test]
async fn a_finished_replay_is_handed_out_in_parts_and_deleted() {
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
    // Its index comes first, for who plays it from afar.
    let place = |name: &[u8]| whole.windows(4).position(|found| found == name).unwrap();
    assert!(place(b"moov") < place(b"mdat"));
    let ask = async |method: Method, headers: &[(&'static str, String)]| {
        let mut request = agent.request(method, &path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = in_time("an answer", request.send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = in_time("a body", response.bytes()).await.unwrap();
        (status, headers, body)
    };
    let (status, headers, body) = ask(Method::HEAD, &[]).await;
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(headers["content-length"], whole.len().to_string());
    assert_eq!(headers["accept-ranges"], "bytes");
    let etag = headers["etag"].to_str().unwrap().to_owned();
    let range = |range: &str| ("range", range.to_owned());
    let (status, headers, body) = ask(Method::GET, &[range("bytes=10-19")]).await;
    assert_eq!((status, &body[..]), (206, &whole[10..20]));
    let told = format!("bytes 10-19/{}", whole.len());
    assert_eq!(headers["content-range"], told);
    let (status, _, body) = ask(Method::GET, &[range("bytes=-5")]).await;
    assert_eq!((status, &body[..]), (206, &whole[whole.len() - 5..]));
    let beyond = format!("bytes={}-", whole.len());
    let (status, headers, _) = ask(Method::GET, &[range(&beyond)]).await;
    assert_eq!(status, 416);
    assert_eq!(headers["content-range"], format!("bytes */{}", whole.len()));
    let (status, ..) = ask(Method::GET, &[range("bytes=0-0"), ("if-range", etag)]).await;
    assert_eq!(status, 206);
    let other = ("if-range", "\"other\"".to_owned());
    let (status, _, body) = ask(Method::GET, &[range("bytes=0-0"), other]).await;
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
    let left = std::fs::read_dir(agent.state_dir().join("replays")).unwrap();
    assert_eq!(left.count(), 0);
    agent.stop().await;
}

#[tokio::test]
async fn two_are_recorded_at_once_and_no_more() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let first = record(&agent, json!({})).await;
    let second = record(&agent, json!({"framerate": 1})).await;
    let (status, answer) = agent.answer(agent.post("/replays").json(&json!({}))).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    // No sound server is set.
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
        assert_eq!(film(&agent, &replay).await.first(GREEN), Some(0.0));
    }
    let third = record(&agent, json!({})).await;
    stop(&agent, &third).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_recording_ends_by_itself_at_its_bounds() {
    let agent = bare_screen()
        .with(["--replay-mb", "1", "--replays-mb", "1"])
        .listening()
        .await;
    let painter = Painter::on(&agent).await;
    let short = record(&agent, json!({"max_duration_in_seconds": 1})).await;
    let replay = ended(&agent, &short).await;
    assert_eq!(replay["end_reason"], "max_duration");
    let length = film(&agent, &replay).await.duration;
    // Without its bound it would have no end.
    assert!((1.0..60.0).contains(&length), "{length}");

    let large = record(&agent, json!({"framerate": 60})).await;
    let replay = ended_with_noise(&agent, &large, &painter).await;
    assert_eq!(replay["end_reason"], "max_size");
    // Without what the way of writing it took beside the film.
    assert!(replay["size_bytes"].as_u64() > Some(900_000), "{replay}");
    film(&agent, &replay).await;
    // What is kept leaves no room now.
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
    let replay = ended(&agent, &unbounded).await;
    assert_eq!(replay["end_reason"], "max_duration");
    agent.stop().await;
}

#[tokio::test]
async fn what_was_recorded_before_the_encoder_was_killed_plays() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let id = record(&agent, json!({})).await;
    recorded(&agent, &id, &painter).await;
    processes::signal(encoder(&agent, &id), Signal::SIGKILL);
    let replay = ended(&agent, &id).await;
    assert_eq!(replay["end_reason"], "encoder_failed");
    assert_eq!(film(&agent, &replay).await.first(GREEN), Some(0.0));
    let (_folder, path) = downloaded(&agent, &id).await;
    a_browser_plays(&path).await;
    // The place is free again.
    let next = record(&agent, json!({})).await;
    assert_eq!(stop(&agent, &next).await["end_reason"], "stopped");
    agent.stop().await;
}

#[tokio::test]
async fn what_was_recorded_before_the_agent_was_killed_plays_and_so_does_the_file_it_left() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let id = record(&agent, json!({})).await;
    recorded(&agent, &id, &painter).await;
    painter.fill_all(RED);
    recorded(&agent, &id, &painter).await;
    let folder = agent.kill().await;
    // As it was left.
    let left = folder.path().join(format!("state/replays/{id}.part.mp4"));
    let copy = TempDir::new().unwrap();
    let copied = copy.path().join("left.mp4");
    std::fs::copy(&left, &copied).unwrap();
    let raw = Video::of(&copied, SPOT.0, SPOT.1);
    assert_eq!(raw.first(GREEN), Some(0.0));
    assert!(raw.first(RED).is_some(), "{raw:?}");

    let agent = TestAgent::again(folder).with(["--headless"]).ready().await;
    let replay = ended(&agent, &id).await;
    assert_eq!(replay["end_reason"], "agent_ended");
    let film = film(&agent, &replay).await;
    assert!(film.first(RED).is_some(), "{film:?}");
    // Chromium plays the one and the other.
    let finished = agent.state_dir().join(format!("replays/{id}.mp4"));
    chromium_plays(&agent, &[&copied, &finished]).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_recording_whose_end_was_not_noted_is_told_as_long_and_as_late_as_it_was() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    let id = record(&agent, json!({})).await;
    recorded(&agent, &id, &painter).await;
    let replay = stop(&agent, &id).await;
    let folder = agent.kill().await;
    // As it is between the film in its place and the note of it.
    let begun = json!({"replay_id": id, "started_at": replay["started_at"], "status": "recording"});
    let notes = folder.path().join(format!("state/replays/{id}.json"));
    std::fs::write(notes, begun.to_string()).unwrap();
    let killed = chrono::Utc::now();

    let agent = TestAgent::again(folder)
        .with(["--headless", "--chromium", "/bin/true"])
        .listening()
        .await;
    let told = ended(&agent, &id).await;
    assert_eq!(told["end_reason"], "agent_ended");
    for field in ["started_at", "duration_ms", "size_bytes"] {
        assert_eq!(told[field], replay[field], "{told} {replay}");
    }
    let finished: chrono::DateTime<chrono::Utc> =
        told["finished_at"].as_str().unwrap().parse().unwrap();
    assert!(finished <= killed, "{told} {killed}");
    agent.stop().await;
}

#[tokio::test]
async fn an_encoder_that_does_nothing_is_given_up_and_what_it_wrote_plays() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    let ids = [
        record(&agent, json!({"framerate": 30})).await,
        record(&agent, json!({"framerate": 30})).await,
    ];
    for id in &ids {
        recorded(&agent, id, &painter).await;
    }
    let encoders = ids.each_ref().map(|id| encoder(&agent, id));
    for encoder in encoders {
        processes::signal(encoder, Signal::SIGSTOP);
    }
    let [stopped, failed] = &ids;
    let (stopped, failed) = tokio::join!(
        stop(&agent, stopped),
        ended_with_noise(&agent, failed, &painter),
    );
    for (replay, reason) in [(stopped, "stopped"), (failed, "encoder_failed")] {
        assert_eq!(replay["end_reason"], reason, "{}", agent.log());
        assert_eq!(film(&agent, &replay).await.first(GREEN), Some(0.0));
    }
    for encoder in encoders {
        assert!(!processes::is_alive(encoder));
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_recording_ends_where_there_is_no_screen_any_more() {
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
    recorded(&agent, &id, &painter).await;
    // There will be no other one.
    std::fs::remove_file(&server).unwrap();
    let screen = agent.display_pid().await;
    processes::signal(screen, Signal::SIGKILL);
    let replay = ended(&agent, &id).await;
    assert_eq!(replay["end_reason"], "screen_ended", "{}", agent.log());
    assert_eq!(film(&agent, &replay).await.first(GREEN), Some(0.0));
    agent.stop().await;
}

#[tokio::test]
async fn no_more_are_kept_than_may_be() {
    let agent = bare_screen().listening().await;
    Painter::on(&agent).await;
    let first = record(&agent, json!({})).await;
    stop(&agent, &first).await;
    let folder = agent.stop_keeping().await;
    let notes = |id: &str| folder.path().join(format!("state/replays/{id}.json"));
    let noted = std::fs::read_to_string(notes(&first)).unwrap();
    for _ in 1..1000 {
        let id = ReplayId::generate();
        std::fs::write(notes(id.as_str()), noted.replace(&first, id.as_str())).unwrap();
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
async fn what_was_recorded_before_the_disk_was_full_plays() {
    let agent = bare_screen().with_room_for_replays(4096).listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(GREEN);
    // With room, an encoder that fails does for another reason.
    let killed = record(&agent, json!({})).await;
    processes::signal(encoder(&agent, &killed), Signal::SIGKILL);
    let replay = ended(&agent, &killed).await;
    assert_eq!(replay["end_reason"], "encoder_failed", "{}", agent.log());

    let id = record(&agent, json!({"framerate": 60})).await;
    let replay = ended_with_noise(&agent, &id, &painter).await;
    assert_eq!(replay["end_reason"], "disk_full", "{}", agent.log());
    let (_folder, path) = downloaded(&agent, &id).await;
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(replay["size_bytes"], bytes.len());
    assert!(bytes.len() > 3_000_000, "{}", bytes.len());
    // Up to where it breaks off.
    let (parts, frames) = (complete_fragments(&bytes), frame_count(&path));
    assert!(parts > 1 && frames >= parts, "{frames} of {parts}");
    a_browser_plays(&path).await;
    agent.stop().await;
}

#[tokio::test]
async fn an_agent_that_is_stopped_finishes_what_it_records() {
    let agent = bare_screen().listening().await;
    let painter = Painter::on(&agent).await;
    painter.fill_all(BLUE);
    let id = record(&agent, json!({})).await;
    let folder = agent.stop_keeping().await;
    let file = |ending: &str| folder.path().join(format!("state/replays/{id}{ending}"));
    let noted = std::fs::read(file(".json")).unwrap();
    let noted: Value = serde_json::from_slice(&noted).unwrap();
    assert_eq!(noted["status"], "finished", "{noted}");
    assert_eq!(noted["end_reason"], "agent_ended", "{noted}");
    let film = Video::of(&file(".mp4"), SPOT.0, SPOT.1);
    assert_eq!(film.first(BLUE), Some(0.0));
    assert!(!file(".part.mp4").exists());
}

#[tokio::test]
async fn another_size_and_another_screen_are_recorded_on() {
    const PAGE: &str = "<body style='background: lime'>";
    let agent = Start::on_screen()
        .with(["--viewport", "640x480"])
        .ready()
        .await;
    let painter = Painter::on(&agent).await;
    // The page is there when the screen is green where nothing but the page can be. A tab that is still being opened may show its own again.
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
    recorded(&agent, &id, &painter).await;
    for (width, height) in [(321, 243), (1280, 720)] {
        let size = json!({"width": width, "height": height});
        agent.ok(agent.put("/display").json(&size)).await;
        green((width, height)).await;
        recorded(&agent, &id, &painter).await;
    }
    // A browser that dies takes nothing of it along.
    let chromium = u32::try_from(agent.chromium_number("pid").await).unwrap();
    processes::signal(chromium, Signal::SIGKILL);
    agent
        .chromium_when("another Chromium", |status| status["generation"] == 2)
        .await;
    green((1280, 720)).await;
    recorded(&agent, &id, &painter).await;
    let screen = agent.display_pid().await;
    processes::signal(screen, Signal::SIGKILL);
    agent
        .chromium_when("one more", |status| status["generation"] == 3)
        .await;
    let painter = Painter::on(&agent).await;
    green((1280, 720)).await;
    recorded(&agent, &id, &painter).await;
    let replay = stop(&agent, &id).await;
    assert_eq!(replay["end_reason"], "stopped");
    assert!(
        agent.log().contains("another screen is recorded"),
        "{}",
        agent.log()
    );

    let (_folder, path) = downloaded(&agent, &id).await;
    let (middle, border) = (Video::of(&path, 316, 296), Video::of(&path, 20, 240));
    assert_eq!((middle.width, middle.height), (640, 480));
    // The smaller screen is seen in the middle, with nothing around it.
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
async fn refuses_what_cannot_be_recorded() {
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
