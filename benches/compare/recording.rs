//! The CPU time of a recording, compared with ffmpeg grabbing the same screen with the same encoder
//! settings.
//!
//! The two run alternately: at once they would compete for the cores. Chromium's CPU time is in
//! neither figure.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use berth::system::media::recorder::ENCODER;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Result, Screen, Site, cpu_seconds, stop},
};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(5);
/// Time for the encoder to start and to receive its first frame.
const START: Duration = Duration::from_secs(1);
const FRAMERATE: u32 = 10;

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let pages = [
        ("still page", site.still()),
        ("scrolling page", site.scrolling()),
        ("video page", site.video()),
    ];
    for (name, page) in pages {
        agent.show(&page).await?;
        let (mut berth, mut baseline) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            berth.add(recorded(agent).await?);
            baseline.add(grabbed(agent.screen()).await?);
        }
        let name = format!("recording {FRAMERATE}/s, {name}");
        figures.compare(
            name,
            "% core",
            berth,
            "ffmpeg -f x11grab, same encoder",
            baseline,
        );
    }
    Ok(())
}

/// Returns the CPU usage of the agent and its encoder, in percent of a core.
async fn recorded(agent: &Agent) -> Result<f64> {
    let request = json!({ "framerate": FRAMERATE });
    let replay = agent.http.post("/replays", &request).await?;
    sleep(START).await;
    let mut pids = vec![agent.pid()?];
    pids.extend(agent.children("ffmpeg")?);
    if pids.len() != 2 {
        return Err(format!("{} encoders are running for one recording", pids.len() - 1).into());
    }
    let share = share_of(&pids).await?;
    let id = replay["replay_id"]
        .as_str()
        .ok_or("a replay without an id")?;
    let ended: Value = agent
        .http
        .post(&format!("/replays/{id}/stop"), &json!({}))
        .await?;
    if ended["status"] != "finished" {
        return Err(format!("the recording failed: {ended}").into());
    }
    let deleted = agent
        .http
        .request(reqwest::Method::DELETE, &format!("/replays/{id}"));
    deleted.send().await?.error_for_status()?;
    Ok(share)
}

async fn grabbed(screen: &Screen) -> Result<f64> {
    let directory = TempDir::new()?;
    let (width, height) = screen.size;
    let mut command = screen.command("ffmpeg");
    command
        .args(["-nostdin", "-loglevel", "error", "-f", "x11grab"])
        .args(["-framerate", &FRAMERATE.to_string()])
        .args(["-video_size", &format!("{width}x{height}")])
        .args(["-i", &screen.display])
        .args(["-c:v", "libx264"])
        .args(ENCODER)
        .args(OPTIONS)
        .arg(directory.path().join("baseline.mp4"))
        .stdin(Stdio::null());
    let child = command.kill_on_drop(true).spawn()?;
    sleep(START).await;
    let share = share_of(&[child.id().ok_or("ffmpeg has exited")?]).await?;
    stop(child).await?;
    Ok(share)
}

/// The agent's other encoder options (`src/system/media/recorder/encoder.rs`).
const OPTIONS: [&str; 12] = [
    "-pix_fmt",
    "yuv420p",
    "-threads",
    "2",
    "-level",
    "4.2",
    "-g",
    "100000",
    "-force_key_frames",
    "expr:gte(t,n_forced*10)",
    "-movflags",
    "+frag_every_frame+empty_moov+default_base_moof",
];

async fn share_of(pids: &[u32]) -> Result<f64> {
    let used = || {
        pids.iter()
            .map(|pid| cpu_seconds(*pid))
            .sum::<Result<f64>>()
    };
    let (start, before) = (Instant::now(), used()?);
    sleep(ROUND).await;
    Ok((used()? - before) / start.elapsed().as_secs_f64() * 100.0)
}
