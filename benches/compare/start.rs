//! Starts: the agent until it listens, a browser until it can be used.

use crate::figures::{Figures, Samples};
use crate::parts::{self, Agent, BareChromium, Dev, Result};
use std::time::Instant;
use tempfile::TempDir;

const ROUNDS: usize = 10;

pub async fn agent(figures: &mut Figures) -> Result<()> {
    let mut ours = Samples::default();
    for _ in 0..ROUNDS {
        let state = TempDir::new()?;
        let start = Instant::now();
        let (child, _) = Agent::spawn(&state).await?;
        ours.add_ms(start.elapsed());
        parts::stop(child).await?;
    }
    figures.alone("agent, exec to listening", "ms", ours);
    Ok(())
}

pub async fn browser(figures: &mut Figures, dev: &Dev, like: &Agent) -> Result<()> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let browser = dev.create_browser().await?;
        ours.add_ms(start.elapsed());
        dev.delete_browser(&browser).await?;

        let start = Instant::now();
        let chromium = BareChromium::start(like).await?;
        theirs.add_ms(start.elapsed());
        chromium.stop().await?;
    }
    figures.compare(
        "browser create",
        "ms",
        ours,
        "bare Chromium to DevTools, display ready",
        theirs,
    );
    Ok(())
}
