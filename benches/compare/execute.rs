//! Scripts, each in a fresh context, compared with a warm Node daemon that keeps its context, and
//! with a fresh Node process per call.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    figures::{Figures, Samples},
    fixtures::{self, Agent, BareChromium, Http, NodeDaemon, Result, Site},
};

const WARM: &str = "warm Node daemon";
const FRESH: &str = "fresh Node process";
/// The time between paced calls, long enough for the pool to refill.
const PACE: Duration = Duration::from_millis(100);

struct Work {
    name: &'static str,
    code: String,
    expected: Value,
    paced: usize,
    back_to_back: usize,
    fresh: usize,
}

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let chromium = BareChromium::start(agent).await?;
    let daemon = NodeDaemon::start(&chromium.ws_url).await?;
    let works = [
        Work {
            name: "return 1",
            code: "return 1".into(),
            expected: json!(1),
            paced: 200,
            back_to_back: 100,
            fresh: 20,
        },
        Work {
            name: "goto+click+title",
            code: format!(
                "await page.goto('{}'); await page.click('button'); return await page.title();",
                site.url
            ),
            expected: json!("after"),
            paced: 100,
            back_to_back: 40,
            fresh: 10,
        },
    ];
    for work in &works {
        paced(figures, agent, &daemon, work).await?;
        back_to_back(figures, agent, &daemon, work).await?;
        fresh(figures, agent, &chromium.ws_url, work).await?;
    }
    memory(figures, agent, &daemon)?;
    daemon.stop().await?;
    chromium.stop().await
}

async fn call(http: &Http, work: &Work) -> Result<Duration> {
    let body = json!({ "code": work.code });
    let start = Instant::now();
    let response = http.post("/automation/execute", &body).await?;
    let duration = start.elapsed();
    check(work, &response)?;
    Ok(duration)
}

/// Fails unless the response has the expected result.
fn check(work: &Work, response: &Value) -> Result<()> {
    if response["success"] == json!(true) && response["result"] == work.expected {
        return Ok(());
    }
    Err(format!("{} returned {response}", work.name).into())
}

async fn paced(
    figures: &mut Figures,
    agent: &Agent,
    daemon: &NodeDaemon,
    work: &Work,
) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for warm_up in [true, false] {
        for _ in 0..if warm_up { 5 } else { work.paced } {
            for (http, samples) in [(&agent.http, &mut berth), (&daemon.http, &mut baseline)] {
                pace.tick().await;
                let duration = call(http, work).await?;
                if !warm_up {
                    samples.add_ms(duration);
                }
            }
        }
    }
    figures.compare(format!("{}, paced", work.name), "ms", berth, WARM, baseline);
    Ok(())
}

async fn back_to_back(
    figures: &mut Figures,
    agent: &Agent,
    daemon: &NodeDaemon,
    work: &Work,
) -> Result<()> {
    const ROUNDS: usize = 4;
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        for (http, samples) in [(&agent.http, &mut berth), (&daemon.http, &mut baseline)] {
            for _ in 0..work.back_to_back / ROUNDS {
                samples.add_ms(call(http, work).await?);
            }
        }
    }
    figures.compare(
        format!("{}, back to back", work.name),
        "ms",
        berth,
        WARM,
        baseline,
    );
    Ok(())
}

async fn fresh(figures: &mut Figures, agent: &Agent, cdp: &str, work: &Work) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..work.fresh {
        berth.add_ms(call(&agent.http, work).await?);
        let start = Instant::now();
        let response = fixtures::run_in_fresh_node(cdp, &work.code).await?;
        baseline.add_ms(start.elapsed());
        check(work, &response)?;
    }
    figures.compare(
        format!("{}, a process each", work.name),
        "ms",
        berth,
        FRESH,
        baseline,
    );
    Ok(())
}

fn memory(figures: &mut Figures, agent: &Agent, daemon: &NodeDaemon) -> Result<()> {
    let one = |pid| -> Result<Samples> {
        let mut samples = Samples::default();
        samples.add(fixtures::resident_mib(pid)?);
        Ok(samples)
    };
    figures.compare(
        "agent, resident after the calls above",
        "MiB",
        one(agent.pid()?)?,
        WARM,
        one(daemon.pid()?)?,
    );
    let mut workers = Samples::default();
    for pid in agent.workers()? {
        workers.add(fixtures::resident_mib(pid)?);
    }
    figures.compare(
        "script worker, resident, waiting",
        "MiB",
        workers,
        WARM,
        one(daemon.pid()?)?,
    );
    Ok(())
}
