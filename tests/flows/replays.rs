//! Replays, from the start of a recording to the page that plays it.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::support::dev::Dev;
use crate::support::live::Photo;
use crate::support::replays::{add_finished, directory_of, red_then_blue};
use crate::support::video::Video;
use crate::support::wait::until;

/// Plays a replay in a page and seeks to the frames of some times. Returns the colour of each, and
/// a screenshot taken while the replay continues from the last.
///
/// Chromium may fire `seeked` before it presents the frame, so the page reads the pixels when the
/// frame with the sought time stamp is presented. A seek to the current frame presents none.
async fn play(dev: &Dev, viewer: &Value, url: &str, video: &Video, times: &[f64]) -> Value {
    let frames: Vec<Value> = times
        .iter()
        .map(|&time| {
            let (start, end) = video.frame_times(time);
            json!({"start": start, "middle": f64::midpoint(start, end)})
        })
        .collect();
    let code = format!(
        "await page.goto({url}); \
         const seen = await page.evaluate(async (frames) => {{ \
           const video = document.querySelector('video'); \
           const once = (name) => new Promise((done) => video.addEventListener(name, done, {{once: true}})); \
           const presented = (start) => new Promise((done, fail) => {{ \
             const others = []; \
             const check = (_, frame) => {{ \
               if (Math.abs(frame.mediaTime - start) < 0.01) return done(); \
               others.push(frame.mediaTime); \
               video.requestVideoFrameCallback(check); \
             }}; \
             video.requestVideoFrameCallback(check); \
             setTimeout(() => fail(new Error(`frame ${{start}} was not presented, but ${{others}} at ${{video.currentTime}}`)), 40000); \
           }}); \
           if (video.readyState < 2) await once('loadeddata'); \
           video.muted = true; \
           const before = video.currentTime; \
           await video.play(); \
           while (video.currentTime === before) await once('timeupdate'); \
           video.pause(); \
           const canvas = document.createElement('canvas'); \
           [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight]; \
           const pen = canvas.getContext('2d'); \
           const seen = []; \
           let current; \
           for (const {{start, middle}} of frames) {{ \
             if (start !== current) {{ \
               const shown = presented(start); \
               video.currentTime = middle; \
               await shown; \
               current = start; \
             }} \
             pen.drawImage(video, 0, 0); \
             const color = [...pen.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data].slice(0, 3); \
             seen.push({{time: video.currentTime, color}}); \
           }} \
           await video.play(); \
           return {{width: video.videoWidth, height: video.videoHeight, duration: video.duration, seen}}; \
         }}, {frames}); \
         const picture = await page.screenshot(); \
         return {{...seen, picture: picture.toString('base64')}};",
        url = json!(url),
        frames = json!(frames),
    );
    let path = format!(
        "/browsers/{}/automation/execute",
        viewer["session_id"].as_str().unwrap()
    );
    let answer = dev.post(&path, json!({ "code": code })).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["success"], true, "{}", answer.body);
    answer.body["result"].clone()
}

/// Asserts that the video, which is blue at that time, covers a good part of the page.
fn shows_blue(name: &str, result: &Value) {
    let share = Photo::of(&result["picture"], name).fraction_of([0, 0, 255]);
    assert!(share > 0.15, "{share} of {name}");
}

/// Returns whether a colour is about this one: compression alters it.
fn is_about(color: &Value, expected: [i64; 3]) -> bool {
    let color = color.as_array().unwrap().iter().zip(expected);
    color
        .map(|(found, expected)| (found.as_i64().unwrap() - expected).abs())
        .all(|difference| difference < 40)
}

const RED: [i64; 3] = [255, 0, 0];
const BLUE: [i64; 3] = [0, 0, 255];
/// The position at which the colour of a recording of [`red_browser`] is sampled.
const MIDDLE: (u32, u32) = (316, 296);

/// Returns the id of a browser in its path.
fn id_in(base: &str) -> &str {
    base.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn replay_link_plays_and_seeks_in_a_browser() {
    let dev = Dev::start().await;
    let recorded = dev.browser(json!({})).await;
    let viewer = dev
        .browser(json!({"viewport": {"width": 1280, "height": 720}}))
        .await;
    let folder = tempfile::tempdir().unwrap();
    let content = red_then_blue(folder.path());
    let video = Video::of_bytes(&content, 156, 116);
    add_finished(&dev, &recorded, &content);
    let base = format!("/browsers/{}", recorded["session_id"].as_str().unwrap());
    assert_eq!(dev.delete(&base).await.status, 204);
    let listed = dev.get(&format!("{base}/replays")).await.body;
    let url = listed[0]["replay_view_url"].as_str().unwrap();

    let result = play(&dev, &viewer, url, &video, &[4.55, 1.05, 1.06, 5.05]).await;
    shows_blue("replay", &result);
    assert_eq!(
        (&result["width"], &result["height"]),
        (&json!(320), &json!(240))
    );
    let duration = result["duration"].as_f64().unwrap();
    assert!((duration - 6.0).abs() < 0.2, "{duration}");
    for (index, (time, color)) in [(4.55, BLUE), (1.05, RED), (1.05, RED), (5.05, BLUE)]
        .into_iter()
        .enumerate()
    {
        let seen = &result["seen"][index];
        let distance = (seen["time"].as_f64().unwrap() - time).abs();
        assert!(distance < 0.01, "{seen}");
        assert!(is_about(&seen["color"], color), "{seen}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn recordings_of_a_killed_control_and_its_agents_are_stored() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"name": "ours"})).await;
    let whole = add_finished(&dev, &browser, b"whole");
    let folder = directory_of(&dev, &browser);
    let part = add_finished(&dev, &browser, b"");
    let files = |ending: &str| folder.join(format!("{part}{ending}"));
    let begun = json!({"replay_id": part, "started_at": chrono::Utc::now(), "status": "recording"});
    fs::write(files(".json"), begun.to_string()).unwrap();
    fs::remove_file(files(".mp4")).unwrap();
    fs::write(files(".part.mp4"), "as far as it came").unwrap();

    let dev = Dev::start_in(dev.crash().await, &[]).await;
    let listed = until("both are kept", async || {
        let listed = dev.get("/browsers/ours/replays").await.body;
        let mut replays = listed.as_array()?.iter();
        let kept = replays.all(|replay| replay["status"] == "finished");
        (kept && listed.as_array()?.len() == 2).then_some(listed)
    })
    .await;
    assert_eq!(listed[0]["replay_id"], json!(whole));
    assert_eq!(listed[1]["end_reason"], "agent_ended");
    for (replay, content) in [(whole, "whole"), (part, "as far as it came")] {
        let path = format!("/browsers/ours/replays/{replay}");
        let file = until("its file is there", async || {
            let file = dev.request(Method::GET, &path).send().await;
            let file = file.unwrap();
            assert!(matches!(file.status().as_u16(), 200 | 202));
            (file.status() == 200).then_some(file)
        })
        .await;
        assert_eq!(file.text().await.unwrap(), content);
    }
    until("nothing is left where it came from", async || {
        let left = fs::read_dir(dev.state_dir().join("left-replays"));
        left.map_or(0, |left| left.count()).eq(&0).then_some(())
    })
    .await;
    dev.finish().await;
}

/// A browser with a screen that shows red.
async fn red_browser(dev: &Dev, request: Value) -> String {
    let mut request = request;
    request["viewport"] = json!({"width": 640, "height": 480});
    let made = dev.post("/browsers", request).await;
    assert_eq!(
        made.status,
        StatusCode::CREATED,
        "{}\n{}",
        made.body,
        dev.log()
    );
    let base = format!("/browsers/{}", made.body["session_id"].as_str().unwrap());
    show(dev, &base, "red").await;
    base
}

/// Fills the page with a colour and scrolls it for a while.
async fn show(dev: &Dev, base: &str, color: &str) {
    let code = format!(
        "await page.setContent('<body style=\"margin: 0; height: 9000px; background: {color}\">'); \
         await page.evaluate(async () => {{ \
           for (const begun = performance.now(); performance.now() < begun + 1500;) {{ \
             window.scrollBy(0, 8); \
             await new Promise(requestAnimationFrame); \
           }} \
         }})"
    );
    let path = format!("{base}/automation/execute");
    let answer = dev.post(&path, json!({ "code": code })).await;
    assert_eq!(answer.body["success"], true, "{}", answer.body);
}

async fn record(dev: &Dev, base: &str, request: Value) -> Value {
    let started = dev.post(&format!("{base}/replays"), request).await;
    assert_eq!(
        started.status,
        StatusCode::CREATED,
        "{}\n{}",
        started.body,
        dev.log()
    );
    assert_eq!(started.body["status"], "recording");
    started.body
}

async fn file(dev: &Dev, base: &str, replay: &Value) -> Response {
    let id = replay["replay_id"].as_str().unwrap();
    let path = format!("{base}/replays/{id}");
    dev.request(Method::GET, &path).send().await.unwrap()
}

/// Waits for the file of a replay that is collected in the background.
async fn file_in_time(dev: &Dev, base: &str, replay: &Value) -> Response {
    until("its file is there", async || {
        let file = file(dev, base, replay).await;
        let status = file.status().as_u16();
        // The agent may be restarting.
        assert!(matches!(status, 200 | 202 | 502 | 503), "{status}");
        (status == 200).then_some(file)
    })
    .await
}

/// Waits for the file of a replay like [`file_in_time`] and decodes it.
async fn video_in_time(dev: &Dev, base: &str, replay: &Value) -> Video {
    let file = file_in_time(dev, base, replay).await;
    Video::of_bytes(&file.bytes().await.unwrap(), MIDDLE.0, MIDDLE.1)
}

/// Returns the only replay in a browser's list.
async fn only(dev: &Dev, base: &str) -> Value {
    let listed = dev.get(&format!("{base}/replays")).await.body;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    listed[0].clone()
}

#[tokio::test]
async fn recording_is_playable_after_its_browser_is_deleted() {
    let dev = Dev::start().await;
    let viewer = dev
        .browser(json!({"viewport": {"width": 1280, "height": 720}}))
        .await;
    let base = red_browser(&dev, json!({"name": "recorded"})).await;
    let started = record(&dev, &base, json!({"framerate": 10})).await;
    let listed = only(&dev, &base).await;
    assert_eq!(listed["replay_id"], started["replay_id"]);
    assert_eq!(listed["status"], "recording");
    assert!(listed.get("finished_at").is_none(), "{listed}");
    let under_way = file(&dev, &base, &started).await;
    assert_eq!(under_way.status(), 202);
    assert!(under_way.headers().contains_key("retry-after"));
    let page = started["replay_view_url"].as_str().unwrap();
    let page = dev.http.get(page).send().await.unwrap();
    assert!(page.headers().contains_key("refresh"));
    assert!(page.text().await.unwrap().contains("still being recorded"));

    show(&dev, &base, "red").await;
    show(&dev, &base, "blue").await;
    let stop = format!(
        "{base}/replays/{}/stop",
        started["replay_id"].as_str().unwrap()
    );
    let stopped = dev.post(&stop, json!({})).await;
    assert_eq!(stopped.status, StatusCode::OK, "{}", stopped.body);
    assert_eq!(stopped.body["end_reason"], "stopped");
    // It is available at once, wherever it is stored.
    assert_eq!(file(&dev, &base, &started).await.status(), 200);
    assert_eq!(dev.delete(&base).await.status, StatusCode::NO_CONTENT);

    let kept = only(&dev, "/browsers/recorded").await;
    assert_eq!(kept["status"], "finished");
    for field in [
        "replay_id",
        "started_at",
        "finished_at",
        "end_reason",
        "duration_ms",
        "size_bytes",
    ] {
        assert_eq!(kept[field], stopped.body[field], "{field}");
    }
    let size = kept["size_bytes"].as_u64().unwrap();
    let whole = file(&dev, &base, &kept).await;
    assert_eq!(whole.status(), 200);
    let whole = whole.bytes().await.unwrap();
    assert_eq!(whole.len() as u64, size);
    let path = format!("{base}/replays/{}", kept["replay_id"].as_str().unwrap());
    let part = dev
        .request(Method::GET, &path)
        .header("range", "bytes=100-299");
    let part = part.send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), whole[100..300]);

    let seconds = kept["duration_ms"].as_u64().unwrap() as f64 / 1000.0;
    assert!(seconds > 3.0, "{seconds}");
    let url = kept["replay_view_url"].as_str().unwrap();
    let late = seconds - 0.3;
    let video = Video::of_bytes(&whole, MIDDLE.0, MIDDLE.1);
    let result = play(&dev, &viewer, url, &video, &[late, 0.7, late]).await;
    shows_blue("recorded", &result);
    assert_eq!(
        (&result["width"], &result["height"]),
        (&json!(640), &json!(480))
    );
    let duration = result["duration"].as_f64().unwrap();
    assert!((duration - seconds).abs() < 0.5, "{duration} and {seconds}");
    for (at, color) in [BLUE, RED, BLUE].into_iter().enumerate() {
        let seen = &result["seen"][at];
        assert!(is_about(&seen["color"], color), "{result}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn deleted_and_idle_browsers_hand_over_their_recordings() {
    let dev = Dev::start().await;
    let recorded = async |request: Value| {
        let base = red_browser(&dev, request).await;
        let replay = record(&dev, &base, json!({})).await;
        let page = replay["replay_view_url"].as_str().unwrap().to_owned();
        (base, page)
    };
    let deleted = async {
        let (base, _) = recorded(json!({})).await;
        delete_and_play(&dev, &base).await;
    };
    let idle = async {
        let (base, page) = recorded(json!({"timeout_seconds": 10})).await;
        wait_for_idle_timeout(&dev, &base, &page).await;
    };
    tokio::join!(deleted, idle);
    dev.finish().await;
}

async fn delete_and_play(dev: &Dev, base: &str) {
    show(dev, base, "blue").await;
    assert_eq!(dev.delete(base).await.status, StatusCode::NO_CONTENT);
    // Deletion has waited for the recording.
    let replay = only(dev, base).await;
    assert_eq!(
        (&replay["status"], &replay["end_reason"]),
        (&json!("finished"), &json!("stopped"))
    );
    let whole = file(dev, base, &replay).await;
    assert_eq!(whole.status(), 200);
    let whole = whole.bytes().await.unwrap();
    assert_eq!(Some(whole.len() as u64), replay["size_bytes"].as_u64());
    let video = Video::of_bytes(&whole, MIDDLE.0, MIDDLE.1);
    let (red, blue) = (video.first(0x00ff_0000), video.first(0x0000_00ff));
    assert!(red < blue && red.is_some(), "{video:?}");
    let viewer = dev.browser(json!({})).await;
    let late = video.duration - 0.1;
    let url = replay["replay_view_url"].as_str().unwrap();
    let result = play(dev, &viewer, url, &video, &[late]).await;
    assert!(is_about(&result["seen"][0]["color"], BLUE), "{result}");
}

/// Waits for the idle timeout. Neither reads of the deleted browser's row nor a page that waits for
/// its replay count as use.
async fn wait_for_idle_timeout(dev: &Dev, base: &str, page: &str) {
    let record = format!("{base}?status=deleted");
    let mut reads = 0;
    until("it has ended", async || {
        let page = dev.http.get(page).send().await.unwrap();
        assert_eq!(page.status(), 200);
        reads += 1;
        (dev.get(&record).await.status == 200).then_some(())
    })
    .await;
    assert!(reads > 1);
    let replay = until("its recording has ended", async || {
        let replay = only(dev, base).await;
        (replay["status"] == "finished").then_some(replay)
    })
    .await;
    assert_eq!(replay["end_reason"], "stopped");
    file_in_time(dev, base, &replay).await;
}

#[tokio::test]
async fn recording_of_a_killed_agent_is_stored() {
    let dev = Dev::start().await;
    let base = red_browser(&dev, json!({"timeout_seconds": 600})).await;
    let viewer = dev.browser(json!({})).await;
    record(&dev, &base, json!({})).await;
    show(&dev, &base, "red").await;
    let host = dev.host_dir(id_in(&base));
    let name = host.file_name().unwrap().to_str().unwrap();
    let agents = dev.descendants_with(" agent ").into_iter();
    let command =
        |pid: &Pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let agent = agents
        .into_iter()
        .find(|pid| command(pid).contains(name))
        .unwrap();
    kill(agent, Signal::SIGKILL).unwrap();
    let replay = until("what it recorded is finished", async || {
        let replay = only(&dev, &base).await;
        (replay["status"] == "finished").then_some(replay)
    })
    .await;
    assert_eq!(replay["end_reason"], "agent_ended");
    let video = video_in_time(&dev, &base, &replay).await;
    assert_eq!(dev.delete(&base).await.status, StatusCode::NO_CONTENT);
    let url = replay["replay_view_url"].as_str().unwrap();
    let result = play(&dev, &viewer, url, &video, &[0.5]).await;
    assert!(is_about(&result["seen"][0]["color"], RED), "{result}");
    dev.finish().await;
}

#[tokio::test]
async fn recording_is_stored_and_playable_after_control_was_killed() {
    let dev = Dev::start().await;
    let base = red_browser(&dev, json!({})).await;
    let started = record(&dev, &base, json!({})).await;
    for _ in 0..2 {
        show(&dev, &base, "red").await;
    }
    let dev = Dev::start_in(dev.crash().await, &[]).await;
    let replay = until("what was recorded is finished", async || {
        let replay = only(&dev, &base).await;
        (replay["status"] == "finished").then_some(replay)
    })
    .await;
    assert_eq!(replay["replay_id"], started["replay_id"]);
    assert_eq!(replay["end_reason"], "agent_ended");
    let video = video_in_time(&dev, &base, &replay).await;
    let viewer = dev.browser(json!({})).await;
    let url = replay["replay_view_url"].as_str().unwrap();
    let result = play(&dev, &viewer, url, &video, &[0.6, 0.2]).await;
    for seen in result["seen"].as_array().unwrap() {
        assert!(is_about(&seen["color"], RED), "{result}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn recording_without_a_row_is_not_retried() {
    let dev = Dev::start().await;
    let base = red_browser(&dev, json!({"timeout_seconds": 600})).await;
    dev.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON replays BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .await;
    let answer = dev.post(&format!("{base}/replays"), json!({})).await;
    answer.assert_error(500, "internal_error");
    assert_eq!(answer.header("x-should-retry"), "false");
    dev.sql("DROP TRIGGER refuse").await;
    // It was started nevertheless.
    until("it is listed", async || {
        let listed = dev.get(&format!("{base}/replays")).await.body;
        (listed[0]["status"] == "recording").then_some(())
    })
    .await;
    dev.finish().await;
}

#[tokio::test]
async fn recording_that_reaches_its_limit_is_collected_automatically() {
    let dev = Dev::start().await;
    let base = red_browser(&dev, json!({"timeout_seconds": 600})).await;
    let started = record(&dev, &base, json!({"max_duration_in_seconds": 1})).await;
    let id = started["replay_id"].as_str().unwrap();
    let blob = dev
        .state_dir()
        .join("blobs/replays")
        .join(format!("{id}.mp4"));
    until("it is kept", async || blob.exists().then_some(())).await;
    let replay = until("it is reported as finished", async || {
        let replay = only(&dev, &base).await;
        (replay["status"] == "finished").then_some(replay)
    })
    .await;
    assert_eq!(replay["end_reason"], "max_duration");
    let agents = dev.host_dir(id_in(&base)).join("state/replays/1");
    until("its agent has it no more", async || {
        let left = fs::read_dir(&agents).unwrap().count();
        (left == 0).then_some(())
    })
    .await;
    let second = record(&dev, &base, json!({})).await;
    dev.post(&format!("{base}/replays"), json!({"record_audio": true}))
        .await
        .assert_error(409, "no_audio");
    let wrong = dev
        .post(
            &format!("{base}/replays"),
            json!({"framerate": 61, "record_audio": 7}),
        )
        .await;
    wrong.assert_error(400, "bad_request");
    assert_eq!(wrong.bad_fields(), ["framerate", "record_audio"]);
    let listed = dev.get(&format!("{base}/replays")).await.body;
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|replay| replay["replay_id"].clone())
        .collect();
    assert_eq!(
        listed,
        [started["replay_id"].clone(), second["replay_id"].clone()]
    );
    let headless = dev.browser(json!({})).await;
    let path = format!(
        "/browsers/{}/replays",
        headless["session_id"].as_str().unwrap()
    );
    dev.post(&path, json!({}))
        .await
        .assert_error(409, "no_display");
    dev.finish().await;
}
