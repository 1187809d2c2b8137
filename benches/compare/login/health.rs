//! The health checks that one core performs, with the browsers of its own machine.
//!
//! More connections than it can check are due all the time. The server and its browsers run on one
//! core, the site and this program on all.

use std::{collections::HashSet, time::Duration};

use chrono::DateTime;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{connect, log_in, store_credential};
use crate::{
    figures::{Figures, Samples},
    fixtures::{Dev, LoginSites, Result, text},
};

const CONNECTIONS: usize = 40;
/// The shortest one that a connection may have.
const CHECK_INTERVAL_SECONDS: u64 = 60;
/// The checks that are counted.
const CHECKS: usize = 60;
const READ_INTERVAL: Duration = Duration::from_secs(1);

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let sites = LoginSites::serve().await;
    let state = TempDir::new()?;
    let flags = [sites.resolver_flag(), sites.certificate_flag()];
    let options: Vec<&str> = flags.iter().map(String::as_str).collect();
    let all = sched_getaffinity(this_thread())?;
    let mut one = CpuSet::new();
    one.set(0)?;
    // The server inherits it.
    sched_setaffinity(this_thread(), &one)?;
    let dev = Dev::start_with(&state, &options, None).await;
    sched_setaffinity(this_thread(), &all)?;
    let dev = dev?;
    store_credential(&dev, &sites).await?;
    let mut paths = Vec::new();
    for number in 0..CONNECTIONS {
        let settings = json!({
            "profile_name": format!("checked-{number}"),
            "health_check_interval": CHECK_INTERVAL_SECONDS,
        });
        let path = connect(&dev, &sites, settings).await?;
        log_in(&dev, &path).await?;
        paths.push(path);
    }
    let (per_hour, durations) = count(&dev, &paths).await?;
    figures.alone("health checks of one core", "per h", per_hour);
    figures.alone("health check", "ms", durations);
    dev.stop().await
}

const fn this_thread() -> Pid {
    Pid::from_raw(0)
}

/// Returns the rate of the next checks, and their durations.
async fn count(dev: &Dev, paths: &[String]) -> Result<(Samples, Samples)> {
    let mut seen: HashSet<String> = HashSet::new();
    for check in checks(dev, paths).await? {
        seen.insert(text(&check, "id")?);
    }
    let start = Instant::now();
    let mut durations = Samples::default();
    let mut counted = 0;
    while counted < CHECKS {
        sleep(READ_INTERVAL).await;
        for check in checks(dev, paths).await? {
            if !seen.insert(text(&check, "id")?) {
                continue;
            }
            if check["error_code"] != Value::Null {
                return Err(format!("a check has failed: {check:#}").into());
            }
            let time =
                |key| -> Result<_> { Ok(DateTime::parse_from_rfc3339(&text(&check, key)?)?) };
            let duration = time("completed_at")? - time("timestamp")?;
            durations.add(duration.as_seconds_f64() * 1e3);
            counted += 1;
        }
    }
    let mut per_hour = Samples::default();
    per_hour.add(counted as f64 / start.elapsed().as_secs_f64() * 3600.0);
    Ok((per_hour, durations))
}

/// Returns the newest health checks of all connections.
async fn checks(dev: &Dev, paths: &[String]) -> Result<Vec<Value>> {
    let mut checks = Vec::new();
    for path in paths {
        let path = format!("{path}/timeline?type=health_check");
        let page: Vec<Value> = serde_json::from_slice(&dev.http.get(&path).await?)?;
        checks.extend(page);
    }
    Ok(checks)
}
