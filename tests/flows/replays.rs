//! Replays from their beginning to a page that plays them.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::dev::Dev;
use crate::support::replays::{folder_of, leave, red_then_blue};
use crate::support::wait::until;

/// What a page that plays a replay shows at some times.
async fn watch(dev: &Dev, viewer: &Value, url: &str, times: &[f64]) -> Value {
    let code = format!(
        "await page.goto({url}); \
         const seen = await page.evaluate(async (times) => {{ \
           const video = document.querySelector('video'); \
           const once = (name) => new Promise((done) => video.addEventListener(name, done, {{once: true}})); \
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
           for (const time of times) {{ \
             const sought = once('seeked'); \
             video.currentTime = time; \
             await sought; \
             pen.drawImage(video, 0, 0); \
             const [r, g, b] = pen.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data; \
             seen.push({{time: video.currentTime, color: [r, g, b]}}); \
           }} \
           return {{width: video.videoWidth, height: video.videoHeight, duration: video.duration, seen}}; \
         }}, {times}); \
         const picture = await page.screenshot(); \
         return {{...seen, picture: picture.toString('base64')}};",
        url = json!(url),
        times = json!(times),
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

/// Keeps a picture for whoever wants to look at it.
fn picture(name: &str, result: &Value) {
    if let Some(folder) = std::env::var_os("BERTH_TEST_PICTURES") {
        let picture = BASE64_STANDARD.decode(result["picture"].as_str().unwrap());
        let folder = std::path::PathBuf::from(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), picture.unwrap()).unwrap();
    }
}

/// Whether a colour is about this one: what was compressed is never exact.
fn is_about(color: &Value, expected: [i64; 3]) -> bool {
    let color = color.as_array().unwrap().iter().zip(expected);
    color
        .map(|(found, expected)| (found.as_i64().unwrap() - expected).abs())
        .all(|difference| difference < 40)
}

const RED: [i64; 3] = [255, 0, 0];
const BLUE: [i64; 3] = [0, 0, 255];

#[tokio::test]
async fn the_link_of_a_replay_plays_and_seeks_in_a_browser() {
    let dev = Dev::start().await;
    let recorded = dev.browser(json!({})).await;
    let viewer = dev
        .browser(json!({"viewport": {"width": 1280, "height": 720}}))
        .await;
    let folder = tempfile::tempdir().unwrap();
    leave(&dev, &recorded, &red_then_blue(folder.path()));
    let base = format!("/browsers/{}", recorded["session_id"].as_str().unwrap());
    assert_eq!(dev.delete(&base).await.status, 204);
    let listed = dev.get(&format!("{base}/replays")).await.body;
    let url = listed[0]["replay_view_url"].as_str().unwrap();

    let result = watch(&dev, &viewer, url, &[4.5, 1.0, 5.0]).await;
    picture("replay.png", &result);
    assert_eq!(
        (&result["width"], &result["height"]),
        (&json!(320), &json!(240))
    );
    let duration = result["duration"].as_f64().unwrap();
    assert!((duration - 6.0).abs() < 0.2, "{duration}");
    for (seen, (time, color)) in [(4.5, BLUE), (1.0, RED), (5.0, BLUE)].iter().enumerate() {
        let seen = &result["seen"][seen];
        assert_eq!(seen["time"].as_f64(), Some(*time));
        assert!(is_about(&seen["color"], *color), "{seen}");
    }
    dev.finish().await;
}

#[tokio::test]
async fn what_a_killed_control_and_its_agents_have_left_is_kept() {
    let dev = Dev::start().await;
    let browser = dev.browser(json!({"name": "ours"})).await;
    let whole = leave(&dev, &browser, b"whole");
    let folder = folder_of(&dev, &browser);
    let part = leave(&dev, &browser, b"");
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
            let file = dev.request(reqwest::Method::GET, &path).send().await;
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
