//! The time from the request to end a session until the next one is usable, compared with a restart
//! of the whole agent with a new profile, without which the next session would find the last one's.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{self, AGENT_TOKEN, Agent, Http, Result, until},
};

const ROUNDS: u64 = 15;
/// Responds once Chromium does.
const READY: &str = "/json/version";

pub async fn measure(figures: &mut Figures) -> Result<()> {
    let (mut with_spare, mut without_spare) = (Samples::default(), Samples::default());
    let (mut back_to_back, mut restart) = (Samples::default(), Samples::default());
    let (spare_state, mut state) = (TempDir::new()?, TempDir::new()?);
    let (spare_child, spare_url) = Agent::spawn(&spare_state, &["--spare"]).await?;
    let (mut child, mut url) = Agent::spawn(&state, &[]).await?;
    for generation in 1..=ROUNDS {
        let http = Http::new(spare_url.clone(), AGENT_TOKEN);
        spare_is_ready(&http).await?;
        with_spare.add_ms(end(&http, 2 * generation - 1).await?);
        // The next spare is not ready yet.
        back_to_back.add_ms(end(&http, 2 * generation).await?);

        let http = Http::new(url, AGENT_TOKEN);
        http.wait_for(READY).await?;
        without_spare.add_ms(end(&http, 1).await?);

        let start = Instant::now();
        fixtures::stop(child).await?;
        state = TempDir::new()?;
        (child, url) = Agent::spawn(&state, &[]).await?;
        Http::new(url.clone(), AGENT_TOKEN).wait_for(READY).await?;
        restart.add_ms(start.elapsed());
    }
    fixtures::stop(spare_child).await?;
    fixtures::stop(child).await?;
    let baseline = "the agent restarted with a new profile";
    let name = "session end to ready, with a spare";
    figures.compare(name, "ms", with_spare, baseline, restart.clone());
    let name = "two sessions ended back to back: the second";
    figures.compare(name, "ms", back_to_back, baseline, restart.clone());
    let name = "session end to ready, without a spare";
    figures.compare(name, "ms", without_spare, baseline, restart);
    Ok(())
}

async fn spare_is_ready(http: &Http) -> Result<()> {
    until(|| async {
        let session: Value = serde_json::from_slice(&http.get("/session").await?)?;
        Ok((session["spare"] == "ready").then_some(()))
    })
    .await
}

/// Ends a session, and waits until the next one is usable.
async fn end(http: &Http, generation: u64) -> Result<Duration> {
    let start = Instant::now();
    let request = json!({ "generation": generation });
    let receipt = http.post("/session/end", &request).await?;
    http.wait_for(READY).await?;
    let elapsed = start.elapsed();
    match receipt["clean"] == true {
        true => Ok(elapsed),
        false => Err(format!("the session did not end clean: {receipt}").into()),
    }
}
