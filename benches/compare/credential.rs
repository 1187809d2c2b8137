//! Reads of stored credentials and of their one-time codes, on both databases. A code is also
//! compared with the program that prints one.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Dev, Result, start_postgres},
};

const TOTP_SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
/// The numbers of clients, each of which sends one request after the other.
const CLIENTS: [usize; 3] = [1, 10, 100];
const DURATION: Duration = Duration::from_secs(2);
const PROGRAM_CALLS: usize = 100;
const READS: [(&str, &str); 2] = [
    ("credential read", "/credentials/bench"),
    ("one-time code", "/credentials/bench/totp-code"),
];

struct Measured {
    times: Samples,
    rate: Samples,
}

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let sqlite = measure_reads(None).await?;
    let postgres = measure_reads(Some(start_postgres().await?)).await?;
    let program = measure_program().await?;
    let code = &sqlite[CLIENTS.len()];
    let name = "one-time code over HTTP, 1 at once";
    figures.compare(name, "ms", code.times.clone(), "oathtool --totp", program);
    let names = READS.iter().flat_map(|(name, _)| {
        let clients = CLIENTS.iter();
        clients.map(move |clients| format!("{name} on PostgreSQL, {clients} at once"))
    });
    for ((name, sqlite), postgres) in names.zip(sqlite).zip(postgres) {
        let baseline = "the same on SQLite";
        figures.compare(name.clone(), "ms", postgres.times, baseline, sqlite.times);
        figures.compare(name, "per s", postgres.rate, baseline, sqlite.rate);
    }
    Ok(())
}

/// Measures each read with each number of clients, in this order.
async fn measure_reads(database: Option<String>) -> Result<Vec<Measured>> {
    let state = TempDir::new()?;
    let dev = Dev::start_with(&state, &["--agents", "0"], database).await?;
    let credential = json!({
        "name": "bench",
        "domain": "shop.example",
        "values": {"username": "ada.lovelace", "password": "correct horse"},
        "totp_secret": TOTP_SECRET,
    });
    dev.http.post("/credentials", &credential).await?;
    let mut measured = Vec::new();
    for (_, path) in READS {
        for clients in CLIENTS {
            measured.push(read(&dev, path, clients).await?);
        }
    }
    dev.stop().await?;
    Ok(measured)
}

async fn read(dev: &Dev, path: &str, clients: usize) -> Result<Measured> {
    let start = Instant::now();
    let reading = (0..clients).map(async |_| {
        let mut times = Vec::new();
        while start.elapsed() < DURATION {
            let began = Instant::now();
            dev.http.get(path).await?;
            times.push(began.elapsed());
        }
        Result::Ok(times)
    });
    let times: Vec<_> = try_join_all(reading).await?.into_iter().flatten().collect();
    let mut measured = Measured {
        times: Samples::default(),
        rate: Samples::default(),
    };
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    measured.rate.add(rate);
    for time in times {
        measured.times.add_ms(time);
    }
    Ok(measured)
}

/// Measures the program that users have for codes, which needs a process for each.
async fn measure_program() -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..PROGRAM_CALLS {
        let start = Instant::now();
        let mut command = Command::new("oathtool");
        let output = command.args(["--totp", "--base32", TOTP_SECRET]);
        let output = output.output().await?;
        samples.add_ms(start.elapsed());
        if !output.status.success() {
            return Err(format!("oathtool failed: {}", output.status).into());
        }
    }
    Ok(samples)
}
