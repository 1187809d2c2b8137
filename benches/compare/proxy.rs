//! The cost of control in front of an agent, for sequential and for concurrent requests.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use reqwest::{Method, StatusCode};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Browser, Dev, Http, Result},
};

/// Requested with a method it does not allow, so that the agent responds at once and only the path
/// to it is measured.
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
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..REQUESTS {
        for (http, path, samples) in [
            (&dev.http, through.as_str(), &mut berth),
            (&agent.http, ROUTE, &mut baseline),
        ] {
            let start = Instant::now();
            request(http, path).await?;
            samples.add_us(start.elapsed());
        }
    }
    figures.compare("proxied request", "us", berth, DIRECT, baseline);

    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        berth.add(rate(&dev.http, &through).await?);
        baseline.add(rate(&agent.http, ROUTE).await?);
    }
    figures.compare(
        format!("proxied requests, {CONNECTIONS} at once"),
        "per s",
        berth,
        DIRECT,
        baseline,
    );
    Ok(())
}

async fn request(http: &Http, path: &str) -> Result<()> {
    let response = http.request(Method::GET, path).send().await?;
    let status = response.status();
    response.bytes().await?;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        Ok(())
    } else {
        Err(format!("GET {path} returned {status}").into())
    }
}

async fn rate(http: &Http, path: &str) -> Result<f64> {
    let start = Instant::now();
    let counts = try_join_all((0..CONNECTIONS).map(async |_| -> Result<usize> {
        let mut count = 0;
        while start.elapsed() < ROUND {
            request(http, path).await?;
            count += 1;
        }
        Ok(count)
    }));
    let count: usize = counts.await?.into_iter().sum();
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
