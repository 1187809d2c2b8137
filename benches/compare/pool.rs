//! A browser of a pool: its acquisition and release, beside a browser that is created and deleted.
//!
//! With one real pool on this machine, and with simulated hosts, which answer at once, for the work
//! of control alone.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Dev, Result, SimulatedHost, start_postgres},
};

const ROUNDS: usize = 20;
/// The size of the pool of simulated hosts: more than there are clients.
const HOSTS: usize = 128;
/// The numbers of clients, each of which acquires and releases one browser after the other.
const CLIENTS: [usize; 3] = [1, 10, 100];
const SECONDS: Duration = Duration::from_secs(2);

/// The times of acquisitions and releases, and their rates.
#[derive(Default)]
struct Measured {
    acquisitions: Samples,
    releases: Samples,
    both: Samples,
    rates: Samples,
}

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    measure_browsers(figures).await?;
    let sqlite = measure_control(None, agent).await?;
    let postgres = measure_control(Some(start_postgres().await?), agent).await?;
    for ((clients, sqlite), postgres) in CLIENTS.into_iter().zip(sqlite).zip(postgres) {
        let baseline = "the same on SQLite";
        for (subject, unit, postgres, sqlite) in [
            (
                "pool acquire",
                "ms",
                postgres.acquisitions,
                sqlite.acquisitions,
            ),
            ("pool release", "ms", postgres.releases, sqlite.releases),
            ("pool acquire and release", "ms", postgres.both, sqlite.both),
            ("pool leases", "per s", postgres.rates, sqlite.rates),
        ] {
            let name = format!("{subject} on PostgreSQL, {clients} at once");
            figures.compare(name, unit, postgres, baseline, sqlite);
        }
    }
    Ok(())
}

/// Measures a pool of two real browsers, and of one whose host has to be recycled each time.
async fn measure_browsers(figures: &mut Figures) -> Result<()> {
    let dev = Dev::start().await?;
    let (mut both, mut created, mut again) =
        (Samples::default(), Samples::default(), Samples::default());
    dev.create_pool(2).await?;
    for _ in 0..ROUNDS {
        dev.wait_for_pool(2).await?;
        let start = Instant::now();
        let session = dev.acquire_browser().await?;
        dev.release_browser(&session).await?;
        both.add_ms(start.elapsed());
    }
    dev.wait_for_pool(2).await?;
    dev.resize_pool(1).await?;
    for _ in 0..ROUNDS {
        dev.wait_for_pool(1).await?;
        let session = dev.acquire_browser().await?;
        dev.release_browser(&session).await?;
        let start = Instant::now();
        let session = dev.acquire_browser().await?;
        again.add_ms(start.elapsed());
        dev.release_browser(&session).await?;
    }
    dev.resize_pool(0).await?;
    for _ in 0..ROUNDS / 2 {
        let start = Instant::now();
        let browser = dev.create_browser().await?;
        created.add_ms(start.elapsed());
        dev.delete_browser(&browser).await?;
    }
    dev.stop().await?;
    let baseline = "a browser is created";
    let name = "pool acquire and release";
    figures.compare(name, "ms", both, baseline, created.clone());
    let name = "pool release to acquire of the same host";
    figures.compare(name, "ms", again, baseline, created);
    Ok(())
}

async fn measure_control(database: Option<String>, agent: &Agent) -> Result<Vec<Measured>> {
    let state = TempDir::new()?;
    let options = [
        "--fleet",
        "registered",
        "--agents",
        "0",
        "--heartbeat-seconds",
        "300",
    ];
    let dev = Dev::start_with(&state, &options, database).await?;
    let token = json!({ "uses": HOSTS });
    let token = dev.http.post("/fleet/join_tokens", &token).await?;
    let token = token["token"].as_str().ok_or("no join token")?;
    let health = agent.http.get("/health").await?;
    for _ in 0..HOSTS {
        SimulatedHost::serve(&dev.http, token, health.clone()).await?;
    }
    dev.create_pool(HOSTS).await?;
    let mut measured = Vec::new();
    for clients in CLIENTS {
        dev.wait_for_pool(HOSTS).await?;
        measured.push(run(&dev, clients).await?);
    }
    dev.stop().await?;
    Ok(measured)
}

async fn run(dev: &Dev, clients: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    let start = Instant::now();
    let running = (0..clients).map(async |_| {
        let mut times = Vec::new();
        while start.elapsed() < SECONDS {
            let began = Instant::now();
            let session = dev.acquire_browser().await?;
            let acquired = Instant::now();
            dev.release_browser(&session).await?;
            times.push((acquired - began, acquired.elapsed()));
        }
        Result::Ok(times)
    });
    let times: Vec<_> = try_join_all(running).await?.into_iter().flatten().collect();
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    measured.rates.add(rate);
    for (acquisition, release) in times {
        measured.acquisitions.add_ms(acquisition);
        measured.releases.add_ms(release);
        measured.both.add_ms(acquisition + release);
    }
    Ok(measured)
}
