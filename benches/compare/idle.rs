//! The wake-ups of the agent while nothing uses its browser.

use std::{collections::BTreeMap, ffi::OsString, fs, time::Duration};

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
    let after = waits(pid)?;
    // Without those of threads that have ended meanwhile.
    let waited = after.iter().map(|(thread, count)| {
        let earlier = before.get(thread).copied().unwrap_or_default();
        count - earlier
    });
    Ok(waited.sum::<u64>() as f64 / WINDOW.as_secs_f64())
}

/// Returns how often each thread of a process has waited: each wait ends with a wake-up.
fn waits(pid: u32) -> Result<BTreeMap<OsString, u64>> {
    let mut waits = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        // It may end between the two.
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        let field = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = field.ok_or("no count of waits")?.trim().parse()?;
        waits.insert(thread.file_name(), count);
    }
    Ok(waits)
}
