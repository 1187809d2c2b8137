//! Scripts, each in a fresh context, compared with a warm Node daemon that keeps its context, and
//! with a fresh Node process per call.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::{
    figures::{Figures, Samples},
    fixtures::{
        self, Agent, BareChromium, Http, NodeDaemon, Result, Site, own_mib, proportional_mib,
    },
};

const WARM: &str = "warm Node daemon";
const FRESH: &str = "fresh Node process";
/// The time between paced calls, long enough for the pool to refill.
const PACE: Duration = Duration::from_millis(100);
/// The number of clients that call at once.
const CLIENTS: usize = 8;
/// A script that has used the page and waits.
const WAITING: &str =
    "await page.title(); await new Promise(resolve => setTimeout(resolve, 3000)); return 1";
/// The time in which all of these wait.
const SETTLED: Duration = Duration::from_secs(2);

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
            // A call takes 120 or 155 ms, by Chromium's frames: a stable median needs many.
            back_to_back: 160,
            fresh: 10,
        },
    ];
    for work in &works {
        paced(figures, agent, &daemon, work).await?;
        back_to_back(figures, agent, &daemon, work).await?;
        fresh(figures, agent, &chromium.ws_url, work).await?;
    }
    // Calls that use a page would disturb each other, since they use the same one.
    at_once(figures, agent, &daemon, &works[0]).await?;
    memory(figures, agent, &daemon)?;
    busy_memory(figures, agent, &daemon).await?;
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
    const ROUNDS: usize = 10;
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

/// Several clients, each of which calls again as soon as it has its answer.
async fn at_once(
    figures: &mut Figures,
    agent: &Agent,
    daemon: &NodeDaemon,
    work: &Work,
) -> Result<()> {
    const ROUNDS: usize = 3;
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        for (http, samples) in [(&agent.http, &mut berth), (&daemon.http, &mut baseline)] {
            let start = Instant::now();
            let clients = (0..CLIENTS).map(|_| async {
                for _ in 0..work.back_to_back / CLIENTS {
                    call(http, work).await?;
                }
                Result::Ok(())
            });
            futures::future::try_join_all(clients).await?;
            let calls = work.back_to_back / CLIENTS * CLIENTS;
            samples.add(calls as f64 / start.elapsed().as_secs_f64());
        }
    }
    figures.compare(
        format!("{}, {CLIENTS} at once", work.name),
        "calls/s",
        berth,
        WARM,
        baseline,
    );
    Ok(())
}

/// Adds the proportional set sizes of the processes while the agent is idle.
fn memory(figures: &mut Figures, agent: &Agent, daemon: &NodeDaemon) -> Result<()> {
    let of = |pids: &[u32], size: fn(u32) -> Result<f64>| -> Result<Samples> {
        let mut samples = Samples::default();
        for pid in pids {
            samples.add(size(*pid)?);
        }
        Ok(samples)
    };
    let node = [daemon.pid()?];
    let (workers, template) = (agent.workers()?, [agent.template()?]);
    for (name, pids) in [
        ("agent", &[agent.pid()?][..]),
        ("template of script workers", &template),
        ("script worker, waiting", &workers),
    ] {
        let (berth, baseline) = (of(pids, proportional_mib)?, of(&node, proportional_mib)?);
        figures.compare(format!("{name}, PSS"), "MiB", berth, WARM, baseline);
    }
    let (berth, baseline) = (of(&workers, own_mib)?, of(&node, own_mib)?);
    figures.compare(
        "script worker, waiting, its own",
        "MiB",
        berth,
        WARM,
        baseline,
    );
    Ok(())
}

/// Adds the proportional set sizes of all processes together, while several scripts wait that have
/// used the page.
async fn busy_memory(figures: &mut Figures, agent: &Agent, daemon: &NodeDaemon) -> Result<()> {
    let work = Work {
        name: "waiting",
        code: WAITING.into(),
        expected: json!(1),
        paced: 0,
        back_to_back: 0,
        fresh: 0,
    };
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for (http, samples) in [(&agent.http, &mut berth), (&daemon.http, &mut baseline)] {
        let clients = (0..CLIENTS).map(|_| call(http, &work));
        let measured = async {
            sleep(SETTLED).await;
            let pids = match std::ptr::eq(http, &daemon.http) {
                true => vec![daemon.pid()?],
                false => [vec![agent.pid()?, agent.template()?], agent.workers()?].concat(),
            };
            let mut total = 0.0;
            for pid in pids {
                total += proportional_mib(pid)?;
            }
            Ok(total)
        };
        let (total, _) = tokio::try_join!(measured, futures::future::try_join_all(clients))?;
        samples.add(total);
    }
    figures.compare(
        format!("agent, template and workers, {CLIENTS} scripts running, PSS"),
        "MiB",
        berth,
        WARM,
        baseline,
    );
    Ok(())
}
