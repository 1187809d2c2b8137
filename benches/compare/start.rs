//! Start-up time of the agent, until it listens, and of a browser, until it is usable.

use std::time::Instant;

use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{self, Agent, BareChromium, Dev, Result},
};

const ROUNDS: usize = 10;

pub async fn agent(figures: &mut Figures) -> Result<()> {
    let mut berth = Samples::default();
    for _ in 0..ROUNDS {
        let state = TempDir::new()?;
        let start = Instant::now();
        let (child, _) = Agent::spawn(&state, &[]).await?;
        berth.add_ms(start.elapsed());
        fixtures::stop(child).await?;
    }
    figures.alone("agent, exec to listening", "ms", berth);
    Ok(())
}

pub async fn browser(figures: &mut Figures, dev: &Dev, like: &Agent) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let browser = dev.create_browser().await?;
        berth.add_ms(start.elapsed());
        dev.delete_browser(&browser).await?;

        let start = Instant::now();
        let chromium = BareChromium::start(like).await?;
        baseline.add_ms(start.elapsed());
        chromium.stop().await?;
    }
    figures.compare(
        "browser create",
        "ms",
        berth,
        "bare Chromium to DevTools, display ready",
        baseline,
    );
    Ok(())
}
