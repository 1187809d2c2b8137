//! Screenshots over HTTP, compared with programs that take one.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Result, Screen, Site},
};

const CALLS: usize = 40;

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    agent.show(&site.scrolling()).await?;
    let screen = agent.screen();
    let (width, height) = screen.size;
    let size = format!("{width}x{height}");
    let directory = TempDir::new()?;
    let file = directory.path().join("shot.png").display().to_string();
    let x11grab = [
        "-nostdin",
        "-loglevel",
        "error",
        "-f",
        "x11grab",
        "-video_size",
        &size,
        "-i",
        &screen.display,
        "-frames:v",
        "1",
        "-y",
        &file,
    ];
    let others: [(&str, &[&str]); 3] = [
        ("ffmpeg", &x11grab),
        ("scrot", &["--overwrite", &file]),
        ("import", &["-window", "root", &file]),
    ];
    for (program, arguments) in others {
        let (mut berth, mut baseline) = (Samples::default(), Samples::default());
        for _ in 0..CALLS {
            berth.add_ms(take_screenshot(agent).await?);
            baseline.add_ms(run(screen, program, arguments).await?);
        }
        let baseline_name = match program {
            "ffmpeg" => "ffmpeg -f x11grab -frames:v 1",
            other => other,
        };
        figures.compare(
            format!("screenshot, {size}"),
            "ms",
            berth,
            baseline_name,
            baseline,
        );
    }
    Ok(())
}

/// Takes a screenshot through the agent; returns the duration.
async fn take_screenshot(agent: &Agent) -> Result<Duration> {
    let start = Instant::now();
    let request = agent.http.request(Method::POST, "/computer/screenshot");
    let response = request.json(&json!({})).send().await?;
    let image = response.error_for_status()?.bytes().await?;
    let duration = start.elapsed();
    if !image.starts_with(b"\x89PNG") {
        return Err("the screenshot is not a PNG".into());
    }
    Ok(duration)
}

/// Runs a program that takes a screenshot; returns the duration.
async fn run(screen: &Screen, program: &str, arguments: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    let mut command = screen.command(program);
    command.args(arguments).stdin(Stdio::null());
    let status = command.status().await?;
    let duration = start.elapsed();
    if !status.success() {
        return Err(format!("{program} failed: {status}").into());
    }
    Ok(duration)
}
