//! The cost of control in front of an agent, against no proxy and against nginx, for sequential
//! and for concurrent requests.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use reqwest::{Method, StatusCode};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Browser, Dev, Http, Nginx, Result},
};

/// Requested with a method it does not allow, so that the agent responds at once and only the path
/// to it is measured.
const ROUTE: &str = "/automation/execute";
const DIRECT: &str = "the agent directly";
const NGINX: &str = "nginx before the agent";
const REQUESTS: usize = 2000;
/// The numbers of connections of which each sends one request after the other.
const CONNECTIONS: [usize; 2] = [16, 256];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

pub async fn measure(
    figures: &mut Figures,
    agent: &Agent,
    dev: &Dev,
    browser: &Browser,
) -> Result<()> {
    let nginx = Nginx::start(agent).await?;
    let through = format!("/browsers/{}{ROUTE}", browser.id);
    let servers = [
        (&dev.http, through.as_str()),
        (&agent.http, ROUTE),
        (&nginx.http, ROUTE),
    ];
    let mut times = [const { Samples::new() }; 3];
    for _ in 0..REQUESTS {
        for ((http, path), times) in servers.iter().zip(&mut times) {
            times.add_us(request(http, path).await?);
        }
    }
    let [berth, direct, by_nginx] = times;
    figures.compare("proxied request", "us", berth.clone(), DIRECT, direct);
    figures.compare("proxied request", "us", berth, NGINX, by_nginx);
    for connections in CONNECTIONS {
        measure_concurrent(figures, servers, connections).await?;
    }
    nginx.stop().await
}

/// Measures the rate and the latency of requests on that number of connections.
async fn measure_concurrent(
    figures: &mut Figures,
    servers: [(&Http, &str); 3],
    connections: usize,
) -> Result<()> {
    let mut times = [const { Samples::new() }; 3];
    let mut rates = [const { Samples::new() }; 3];
    for _ in 0..ROUNDS {
        for (index, (http, path)) in servers.into_iter().enumerate() {
            let rate = load(http, path, connections, &mut times[index]).await?;
            rates[index].add(rate);
        }
    }
    let [berth, direct, by_nginx] = rates;
    let name = format!("proxied requests, {connections} at once");
    figures.compare(name.as_str(), "per s", berth.clone(), DIRECT, direct);
    figures.compare(name.as_str(), "per s", berth, NGINX, by_nginx);
    let [berth, direct, by_nginx] = times;
    let name = format!("latency, {connections} at once");
    figures.compare(name.as_str(), "us", berth.clone(), DIRECT, direct);
    figures.compare(name.as_str(), "us", berth, NGINX, by_nginx);
    Ok(())
}

/// Returns the time of a request.
async fn request(http: &Http, path: &str) -> Result<Duration> {
    let start = Instant::now();
    let response = http.request(Method::GET, path).send().await?;
    let status = response.status();
    response.bytes().await?;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        Ok(start.elapsed())
    } else {
        Err(format!("GET {path} returned {status}").into())
    }
}

/// Sends requests on that number of connections for [`ROUND`]. Returns their rate.
async fn load(http: &Http, path: &str, connections: usize, times: &mut Samples) -> Result<f64> {
    let start = Instant::now();
    let clients = try_join_all((0..connections).map(async |_| -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        while start.elapsed() < ROUND {
            times.push(request(http, path).await?);
        }
        Ok(times)
    }));
    let measured: Vec<Duration> = clients.await?.into_iter().flatten().collect();
    let rate = measured.len() as f64 / start.elapsed().as_secs_f64();
    for time in measured {
        times.add_us(time);
    }
    Ok(rate)
}
