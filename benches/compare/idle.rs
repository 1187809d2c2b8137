//! The wake-ups of the agent while nothing uses its browser.

use std::{fs, time::Duration};

use tokio::time::sleep;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, BareChromium, NodeDaemon, Result},
};

const ROUNDS: usize = 10;
const WINDOW: Duration = Duration::from_secs(3);

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let chromium = BareChromium::start(agent).await?;
    let daemon = NodeDaemon::start(&chromium.ws_url).await?;
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        berth.add(wake_ups_per_second(agent.pid()?).await?);
        baseline.add(wake_ups_per_second(daemon.pid()?).await?);
    }
    daemon.stop().await?;
    chromium.stop().await?;
    let name = "wake-ups, idle browser";
    let node = "Node with playwright-core, connected";
    figures.compare(name, "per s", berth, node, baseline);
    Ok(())
}

async fn wake_ups_per_second(pid: u32) -> Result<f64> {
    let before = waits(pid)?;
    sleep(WINDOW).await;
    Ok((waits(pid)? - before) as f64 / WINDOW.as_secs_f64())
}

/// Returns how often the threads of a process have waited: each wait ends with a wake-up.
fn waits(pid: u32) -> Result<u64> {
    let mut waits = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let field = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits += field.ok_or("no count of waits")?.trim().parse::<u64>()?;
    }
    Ok(waits)
}
