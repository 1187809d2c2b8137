//! The time from a change of a login to its arrival at clients that read its events, compared with
//! clients that request the connection again and again.
//!
//! The change is a cancellation, and counts from its response on: then it is stored. Each change is
//! seen either by streams or by clients that poll. Those begin at random times, so that a change
//! comes at any time between two requests. No login gets a browser.

use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{interval, sleep};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Dev, EventBlocks, Http, Result, text},
};

/// The numbers of clients, each with the number of changes.
const CLIENTS: [(usize, usize); 2] = [(1, 100), (50, 20)];
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let state = TempDir::new()?;
    let options = ["--fleet", "registered", "--agents", "0"];
    let dev = Dev::start_with(&state, &options, None).await?;
    let connection = json!({"domain": "shop.example", "profile_name": "bench"});
    let connection = dev.http.post("/auth/connections", &connection).await?;
    let login = Login {
        http: dev.http.clone(),
        path: format!("/auth/connections/{}", text(&connection, "id")?),
    };
    for (clients, changes) in CLIENTS {
        let mut by_stream = Samples::default();
        let mut by_poll = POLL_INTERVALS.map(|interval| (interval, Samples::default()));
        for _ in 0..changes {
            login.stream(clients, &mut by_stream).await?;
            for (interval, samples) in &mut by_poll {
                login.poll(clients, *interval, samples).await?;
            }
        }
        for (interval, samples) in by_poll {
            let name = format!("change of a login to its readers, {clients} at once");
            let baseline = format!("GET every {} ms", interval.as_millis());
            figures.compare(name, "ms", by_stream.clone(), baseline, samples);
        }
    }
    dev.stop().await
}

/// The connection whose login is canceled.
struct Login {
    http: Http,
    path: String,
}

impl Login {
    async fn begin(&self) -> Result<()> {
        let path = format!("{}/login", self.path);
        self.http.post(&path, &json!({})).await?;
        Ok(())
    }

    /// Cancels the login. Returns the time of the response.
    async fn cancel(&self) -> Result<Instant> {
        let path = format!("{}/cancel", self.path);
        self.http.post(&path, &json!({})).await?;
        Ok(Instant::now())
    }

    /// Measures a change with clients that read the events.
    async fn stream(&self, clients: usize, samples: &mut Samples) -> Result<()> {
        self.begin().await?;
        let path = format!("{}/events", self.path);
        let opening = (0..clients).map(async |_| {
            let request = self.http.request(Method::GET, &path);
            let mut events = EventBlocks::open(request).await;
            // The present state.
            events.next().await;
            events
        });
        let streams = join_all(opening).await;
        let readers = streams.into_iter().map(|mut events| {
            tokio::spawn(async move {
                while let Some((_, event)) = events.next().await {
                    if is_canceled(&event) {
                        return Result::Ok(Instant::now());
                    }
                }
                Err("a stream ended before the change".into())
            })
        });
        let readers: Vec<_> = readers.collect();
        let committed = self.cancel().await?;
        for arrival in try_join_all(readers).await? {
            samples.add(ms_between(committed, arrival?));
        }
        Ok(())
    }

    /// Measures a change with clients that poll.
    async fn poll(&self, clients: usize, period: Duration, samples: &mut Samples) -> Result<()> {
        self.begin().await?;
        let readers = (0..clients).map(|_| {
            let (http, path) = (self.http.clone(), self.path.clone());
            tokio::spawn(async move {
                sleep(period.mul_f64(fastrand::f64())).await;
                let mut ticks = interval(period);
                loop {
                    ticks.tick().await;
                    let connection: Value = serde_json::from_slice(&http.get(&path).await?)?;
                    if is_canceled(&connection) {
                        return Result::Ok(Instant::now());
                    }
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        // Each has polled once by then.
        sleep(period).await;
        let committed = self.cancel().await?;
        for arrival in try_join_all(readers).await? {
            samples.add(ms_between(committed, arrival?));
        }
        Ok(())
    }
}

fn is_canceled(state: &Value) -> bool {
    state["flow_status"] == "CANCELED"
}

/// Returns the milliseconds from one time to another, which may be before it.
fn ms_between(from: Instant, to: Instant) -> f64 {
    let later = to.saturating_duration_since(from).as_secs_f64();
    let earlier = from.saturating_duration_since(to).as_secs_f64();
    (later - earlier) * 1e3
}
