//! Recordings as an agent leaves them, made without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth::api::ids::ReplayId;
use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use super::dev::Dev;

/// Where the agent of a browser keeps its recordings.
pub fn folder_of(dev: &Dev, browser: &Value) -> PathBuf {
    let id = browser["session_id"].as_str().unwrap();
    let browser = dev.state_dir().join("browsers").join(id);
    browser.join("state/replays")
}

/// Puts a finished recording where the agent has its own; it is found when that ends.
pub fn leave(dev: &Dev, browser: &Value, content: &[u8]) -> ReplayId {
    let (folder, id) = (folder_of(dev, browser), ReplayId::generate());
    fs::create_dir_all(&folder).unwrap();
    let finished_at = Utc::now();
    let started_at = finished_at - TimeDelta::seconds(6);
    let notes = json!({
        "replay_id": id,
        "started_at": started_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        "finished_at": finished_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        "status": "finished",
        "end_reason": "stopped",
        "duration_ms": 6000,
        "size_bytes": content.len(),
    });
    fs::write(folder.join(format!("{id}.json")), notes.to_string()).unwrap();
    fs::write(folder.join(format!("{id}.mp4")), content).unwrap();
    id
}

/// What the agent would have written down of it.
pub fn notes_of(dev: &Dev, browser: &Value, id: &ReplayId) -> Value {
    let notes = folder_of(dev, browser).join(format!("{id}.json"));
    serde_json::from_slice(&fs::read(notes).unwrap()).unwrap()
}

/// Three seconds of red, then three of blue.
pub fn red_then_blue(folder: &Path) -> Vec<u8> {
    let file = folder.join("red-then-blue.mp4");
    let made = Command::new("ffmpeg")
        .args(["-loglevel", "error"])
        .args(["-f", "lavfi", "-i", "color=red:s=320x240:d=3:r=10"])
        .args(["-f", "lavfi", "-i", "color=blue:s=320x240:d=3:r=10"])
        .args(["-filter_complex", "concat", "-pix_fmt", "yuv420p"])
        .args(["-movflags", "+faststart"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::read(file).unwrap()
}
