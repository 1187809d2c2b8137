//! Scripts: ours, each call in a fresh context, beside a warm daemon that keeps one, and beside a fresh Node per call.

use crate::figures::{Figures, Samples};
use crate::parts::{self, Agent, BareChromium, Daemon, Http, Result, Site};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

const WARM: &str = "warm Node daemon";
const FRESH: &str = "fresh Node process";
/// Time between paced calls, enough for a pool to fill again.
const PACE: Duration = Duration::from_millis(100);

struct Work {
    name: &'static str,
    code: String,
    answer: Value,
    paced: usize,
    back_to_back: usize,
    fresh: usize,
}

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let chromium = BareChromium::start(agent).await?;
    let daemon = Daemon::start(&chromium.ws_url).await?;
    let works = [
        Work {
            name: "return 1",
            code: "return 1".into(),
            answer: json!(1),
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
            answer: json!("after"),
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
    let answer = http.post("/automation/execute", &body).await?;
    let took = start.elapsed();
    right(work, &answer)?;
    Ok(took)
}

/// A wrong answer has no speed.
fn right(work: &Work, answer: &Value) -> Result<()> {
    if answer["success"] == json!(true) && answer["result"] == work.answer {
        return Ok(());
    }
    Err(format!("{} answered {answer}", work.name).into())
}

async fn paced(figures: &mut Figures, agent: &Agent, daemon: &Daemon, work: &Work) -> Result<()> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for warm_up in [true, false] {
        for _ in 0..if warm_up { 5 } else { work.paced } {
            for (http, samples) in [(&agent.http, &mut ours), (&daemon.http, &mut theirs)] {
                pace.tick().await;
                let took = call(http, work).await?;
                if !warm_up {
                    samples.add_ms(took);
                }
            }
        }
    }
    figures.compare(format!("{}, paced", work.name), "ms", ours, WARM, theirs);
    Ok(())
}

async fn back_to_back(
    figures: &mut Figures,
    agent: &Agent,
    daemon: &Daemon,
    work: &Work,
) -> Result<()> {
    const ROUNDS: usize = 4;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        for (http, samples) in [(&agent.http, &mut ours), (&daemon.http, &mut theirs)] {
            for _ in 0..work.back_to_back / ROUNDS {
                samples.add_ms(call(http, work).await?);
            }
        }
    }
    figures.compare(
        format!("{}, back to back", work.name),
        "ms",
        ours,
        WARM,
        theirs,
    );
    Ok(())
}

async fn fresh(figures: &mut Figures, agent: &Agent, cdp: &str, work: &Work) -> Result<()> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..work.fresh {
        ours.add_ms(call(&agent.http, work).await?);
        let start = Instant::now();
        let answer = parts::fresh_node(cdp, &work.code).await?;
        theirs.add_ms(start.elapsed());
        right(work, &answer)?;
    }
    figures.compare(
        format!("{}, a process each", work.name),
        "ms",
        ours,
        FRESH,
        theirs,
    );
    Ok(())
}

fn memory(figures: &mut Figures, agent: &Agent, daemon: &Daemon) -> Result<()> {
    let one = |pid| -> Result<Samples> {
        let mut samples = Samples::default();
        samples.add(parts::resident(pid)?);
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
        workers.add(parts::resident(pid)?);
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
