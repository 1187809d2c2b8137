//! Screenshots over HTTP, compared with programs that take one.

use crate::figures::{Figures, Samples};
use crate::fixtures::{Agent, Result, Site};
use serde_json::json;
use std::process::Stdio;
use std::time::Instant;
use tempfile::TempDir;

const CALLS: usize = 40;

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    agent.show(&site.scrolling()).await?;
    let screen = agent.screen()?;
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
            let start = Instant::now();
            let request = agent
                .http
                .request(reqwest::Method::POST, "/computer/screenshot");
            let answer = request.json(&json!({})).send().await?.error_for_status()?;
            let image = answer.bytes().await?;
            berth.add_ms(start.elapsed());
            if !image.starts_with(b"\x89PNG") {
                return Err("the screenshot is not a PNG".into());
            }

            let start = Instant::now();
            let mut command = screen.command(program);
            let status = command
                .args(arguments)
                .stdin(Stdio::null())
                .status()
                .await?;
            baseline.add_ms(start.elapsed());
            if !status.success() {
                return Err(format!("{program} failed: {status}").into());
            }
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
