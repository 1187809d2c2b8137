//! What control costs in front of an agent: one request at a time, and many.

use crate::figures::{Figures, Samples};
use crate::parts::{Agent, Browser, Dev, Http, Result};
use futures::future::try_join_all;
use reqwest::{Method, StatusCode};
use std::time::{Duration, Instant};

/// Asked with a method it does not take, the agent answers at once: what is left is the way to it.
const ROUTE: &str = "/automation/execute";
const DIRECT: &str = "the agent directly";
const REQUESTS: usize = 2000;
const CONNECTIONS: usize = 16;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

pub async fn measure(
    figures: &mut Figures,
    agent: &Agent,
    dev: &Dev,
    browser: &Browser,
) -> Result<()> {
    let through = format!("/browsers/{}{ROUTE}", browser.id);
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..REQUESTS {
        for (http, path, samples) in [
            (&dev.http, through.as_str(), &mut ours),
            (&agent.http, ROUTE, &mut theirs),
        ] {
            let start = Instant::now();
            ask(http, path).await?;
            samples.add_us(start.elapsed());
        }
    }
    figures.compare("proxied request", "us", ours, DIRECT, theirs);

    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        ours.add(rate(&dev.http, &through).await?);
        theirs.add(rate(&agent.http, ROUTE).await?);
    }
    figures.compare(
        format!("proxied requests, {CONNECTIONS} at once"),
        "per s",
        ours,
        DIRECT,
        theirs,
    );
    Ok(())
}

async fn ask(http: &Http, path: &str) -> Result<()> {
    let response = http.request(Method::GET, path).send().await?;
    let status = response.status();
    response.bytes().await?;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        Ok(())
    } else {
        Err(format!("GET {path} answered {status}").into())
    }
}

async fn rate(http: &Http, path: &str) -> Result<f64> {
    let start = Instant::now();
    let counts = try_join_all((0..CONNECTIONS).map(async |_| -> Result<usize> {
        let mut count = 0;
        while start.elapsed() < ROUND {
            ask(http, path).await?;
            count += 1;
        }
        Ok(count)
    }));
    let count: usize = counts.await?.into_iter().sum();
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
