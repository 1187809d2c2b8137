//! Recordings as an agent stores them, created without an agent.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use berth::api::ids::ReplayId;
use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use super::dev::Dev;

/// Returns the directory of a browser's recordings.
pub fn directory_of(dev: &Dev, browser: &Value) -> PathBuf {
    let id = browser["session_id"].as_str().unwrap();
    dev.host_dir(id).join("state/replays/1")
}

/// Adds a finished recording to the browser's directory. Control finds it when the agent ends.
pub fn add_finished(dev: &Dev, browser: &Value, content: &[u8]) -> ReplayId {
    add_finished_in(&directory_of(dev, browser), content)
}

/// Adds a finished recording to a directory of recordings.
pub fn add_finished_in(directory: &Path, content: &[u8]) -> ReplayId {
    let id = ReplayId::generate();
    fs::create_dir_all(directory).unwrap();
    let finished_at = Utc::now();
    let started_at = finished_at - TimeDelta::seconds(6);
    let metadata = json!({
        "replay_id": id,
        "started_at": started_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        "finished_at": finished_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        "status": "finished",
        "end_reason": "stopped",
        "duration_ms": 6000,
        "size_bytes": content.len(),
    });
    fs::write(directory.join(format!("{id}.json")), metadata.to_string()).unwrap();
    fs::write(directory.join(format!("{id}.mp4")), content).unwrap();
    id
}

/// Returns a recording's metadata file.
pub fn metadata_of(dev: &Dev, browser: &Value, id: &ReplayId) -> Value {
    let metadata = directory_of(dev, browser).join(format!("{id}.json"));
    serde_json::from_slice(&fs::read(metadata).unwrap()).unwrap()
}

/// Returns a video of three seconds of red and three of blue.
pub fn red_then_blue(directory: &Path) -> Vec<u8> {
    let file = directory.join("red-then-blue.mp4");
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
