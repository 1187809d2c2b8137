//! The size of a fleet: the heartbeats of 1,000 simulated hosts, and the memory and the CPU time of
//! control with them and with 10,000 sessions in its database.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Dev, Http, Result, SimulatedHost, cpu_seconds, resident_mib},
};

const HOSTS: usize = 1000;
const SESSIONS: u32 = 10_000;
/// The number of hosts that send at once when control is to answer as fast as it can.
const AT_ONCE: usize = 16;
/// The interval of heartbeats, as set by default.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time over which the CPU time is measured.
const WINDOW: Duration = Duration::from_secs(10);

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let state = TempDir::new()?;
    let dev = Dev::start_in(&state).await?;
    let browser = dev.create_browser().await?;
    dev.delete_browser(&browser).await?;
    let small = resident_mib(dev.pid()?)?;
    let idle_cpu = cpu_share(dev.pid()?, sleep(WINDOW)).await?;
    dev.stop().await?;

    add_sessions(&state).await?;
    let start = Instant::now();
    let dev = Dev::start_in(&state).await?;
    let started = start.elapsed();
    let (hosts, registrations) = register_hosts(&dev.http).await?;
    let mut heartbeats = Samples::default();
    let start = Instant::now();
    send_heartbeats(&dev.http, &hosts, &mut heartbeats).await?;
    let rate = HOSTS as f64 / start.elapsed().as_secs_f64();
    let steady = send_steadily(&dev.http, &hosts);
    let busy_cpu = cpu_share(dev.pid()?, async { steady.await.map(drop) }).await?;
    let silent_cpu = cpu_share(dev.pid()?, sleep(WINDOW)).await?;
    let mut pages = Samples::default();
    for _ in 0..100 {
        let start = Instant::now();
        let page = dev.http.get("/browsers?status=all&limit=100").await?;
        pages.add_ms(start.elapsed());
        expect_sessions(&page)?;
    }
    let large = resident_mib(dev.pid()?)?;
    dev.stop().await?;

    let empty = "an empty database";
    figures.alone("control's start with 10,000 sessions", "ms", ms(started));
    let name = "control's memory, 1,000 hosts, 10,000 sessions";
    figures.compare(name, "MiB", of(large), empty, of(small));
    let name = "control's idle CPU with them";
    figures.compare(name, "% core", of(silent_cpu), empty, of(idle_cpu));
    figures.alone("CPU of 100 heartbeats per s", "% core", of(busy_cpu));
    figures.alone("heartbeat, 16 at once", "ms", heartbeats);
    figures.alone("heartbeats, 16 at once", "per s", of(rate));
    figures.alone("registration of a host, 16 at once", "ms", registrations);
    figures.alone("page of 100 of 10,000 sessions", "ms", pages);
    Ok(())
}

/// Copies the row of the only session, which has ended.
async fn add_sessions(state: &TempDir) -> Result<()> {
    let path = state.path().join("berth.db");
    let mut database = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await?;
    let names: Vec<(String,)> = sqlx::query_as("SELECT name FROM pragma_table_info('browsers')")
        .fetch_all(&mut database)
        .await?;
    let names: Vec<&str> = names.iter().map(|(name,)| name.as_str()).collect();
    let values: Vec<&str> = names
        .iter()
        .map(|name| match *name {
            "id" => "printf('brw_%026d', number)",
            "created_at" => "created_at + number",
            other => other,
        })
        .collect();
    let copy = format!(
        "WITH RECURSIVE numbers(number) AS
             (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {SESSIONS})
         INSERT INTO browsers ({}) SELECT {} FROM browsers, numbers",
        names.join(", "),
        values.join(", ")
    );
    sqlx::query(sqlx::AssertSqlSafe(copy))
        .execute(&mut database)
        .await?;
    database.close().await?;
    Ok(())
}

fn expect_sessions(page: &[u8]) -> Result<()> {
    let page: Value = serde_json::from_slice(page)?;
    match page.as_array().map(Vec::len) {
        Some(100) => Ok(()),
        _ => Err("the page does not have 100 sessions".into()),
    }
}

async fn register_hosts(http: &Http) -> Result<(Vec<SimulatedHost>, Samples)> {
    let token = http
        .post("/fleet/join_tokens", &json!({ "uses": HOSTS }))
        .await?;
    let token = token["token"].as_str().ok_or("no join token")?;
    let numbers: Vec<usize> = (0..HOSTS).collect();
    let clients = numbers.chunks(HOSTS.div_ceil(AT_ONCE)).map(async |chunk| {
        let mut registered = Vec::new();
        for number in chunk {
            // Nothing connects to it, because the host never reports that it is ready.
            let address = format!("10.1.{}.{}:10001", number / 250, number % 250 + 1);
            registered.push(SimulatedHost::register(http, token, &address).await?);
        }
        Result::Ok(registered)
    });
    let mut times = Samples::default();
    let mut hosts = Vec::new();
    for (host, time) in try_join_all(clients).await?.into_iter().flatten() {
        times.add_ms(time);
        hosts.push(host);
    }
    Ok((hosts, times))
}

/// Sends a heartbeat of each host, [`AT_ONCE`] at once.
async fn send_heartbeats(http: &Http, hosts: &[SimulatedHost], times: &mut Samples) -> Result<()> {
    let clients = hosts
        .chunks(hosts.len().div_ceil(AT_ONCE))
        .map(async |chunk| {
            let mut times = Vec::new();
            for host in chunk {
                times.push(host.send_heartbeat(http, false).await?);
            }
            Result::Ok(times)
        });
    for time in try_join_all(clients).await?.into_iter().flatten() {
        times.add_ms(time);
    }
    Ok(())
}

/// Sends a heartbeat of each host, evenly over the interval of heartbeats.
async fn send_steadily(http: &Http, hosts: &[SimulatedHost]) -> Result<()> {
    let mut ticks = interval(INTERVAL / u32::try_from(hosts.len())?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for host in hosts {
        ticks.tick().await;
        host.send_heartbeat(http, false).await?;
    }
    Ok(())
}

/// Returns the CPU time of a process while `work` runs, in per cent of a core.
async fn cpu_share(pid: u32, work: impl Future<Output = impl Sized>) -> Result<f64> {
    let (before, start) = (cpu_seconds(pid)?, Instant::now());
    work.await;
    let used = cpu_seconds(pid)? - before;
    Ok(100.0 * used / start.elapsed().as_secs_f64())
}

fn ms(time: Duration) -> Samples {
    of(time.as_secs_f64() * 1e3)
}

fn of(value: f64) -> Samples {
    let mut samples = Samples::new();
    samples.add(value);
    samples
}
