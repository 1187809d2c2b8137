//! The work of control for a browser: its creation on a ready host and its end, on both databases.
//! The hosts are simulated and answer at once.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Dev, Result, SimulatedHost, start_postgres},
};

/// More than there are clients: one is always ready.
const HOSTS: usize = 128;
/// The numbers of clients, each of which creates and ends one browser after the other.
const CLIENTS: [usize; 3] = [1, 10, 100];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(1);

/// The times of creations and ends, and their rates.
#[derive(Default)]
struct Measured {
    creations: Samples,
    ends: Samples,
    rates: Samples,
}

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let sqlite = measure_on(None, agent).await?;
    let postgres = measure_on(Some(start_postgres().await?), agent).await?;
    for ((clients, sqlite), postgres) in CLIENTS.into_iter().zip(sqlite).zip(postgres) {
        let baseline = "the same on SQLite";
        let name = |subject| format!("{subject}, {clients} at once");
        let creation = name("browser create on PostgreSQL");
        figures.compare(
            creation,
            "ms",
            postgres.creations,
            baseline,
            sqlite.creations,
        );
        let end = name("browser end on PostgreSQL");
        figures.compare(end, "ms", postgres.ends, baseline, sqlite.ends);
        let rate = name("browsers on PostgreSQL");
        figures.compare(rate, "per s", postgres.rates, baseline, sqlite.rates);
    }
    Ok(())
}

async fn measure_on(database: Option<String>, agent: &Agent) -> Result<Vec<Measured>> {
    let state = TempDir::new()?;
    let options = ["--fleet", "registered", "--agents", "0"];
    let dev = Dev::start_with(&state, &options, database).await?;
    let token = json!({ "uses": HOSTS });
    let token = dev.http.post("/fleet/join_tokens", &token).await?;
    let token = token["token"].as_str().ok_or("no join token")?;
    let health = agent.http.get("/health").await?;
    for _ in 0..HOSTS {
        SimulatedHost::serve(&dev.http, token, health.clone()).await?;
    }
    let mut measured = Vec::new();
    for clients in CLIENTS {
        measured.push(run(&dev, clients).await?);
    }
    dev.stop().await?;
    Ok(measured)
}

async fn run(dev: &Dev, clients: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let running = (0..clients).map(async |_| {
            let mut times = Vec::new();
            while start.elapsed() < ROUND {
                let created = Instant::now();
                let browser = dev.create_browser().await?;
                let ended = Instant::now();
                dev.delete_browser(&browser).await?;
                times.push((ended - created, ended.elapsed()));
            }
            Result::Ok(times)
        });
        let times: Vec<_> = try_join_all(running).await?.into_iter().flatten().collect();
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        measured.rates.add(rate);
        for (creation, end) in times {
            measured.creations.add_ms(creation);
            measured.ends.add_ms(end);
        }
    }
    Ok(measured)
}
