//! Logins of auth connections.
//!
//! - `by_credential`: logins with stored credentials
//! - `health`: the health checks of one core
//! - `readers`: the time until clients see a change of a login

mod by_credential;
mod health;
mod readers;

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    figures::Figures,
    fixtures::{Agent, Dev, EventBlocks, LoginSites, Result, text},
};

/// The site of the logins, a form with user name and password.
const SITE: &str = "password.test";

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    by_credential::measure(figures, agent).await?;
    health::measure(figures).await?;
    readers::measure(figures).await
}

/// Stores the credential for the site.
async fn store_credential(dev: &Dev, sites: &LoginSites) -> Result<()> {
    let credential = json!({
        "name": SITE,
        "domain": SITE,
        "values": {"username": sites.ada.user, "password": sites.ada.password},
    });
    dev.http.post("/credentials", &credential).await?;
    Ok(())
}

/// Creates a connection that is logged in by the credential, with further settings. Returns its
/// path.
async fn connect(dev: &Dev, sites: &LoginSites, mut settings: Value) -> Result<String> {
    settings["domain"] = SITE.into();
    settings["login_url"] = sites.secure_url(SITE, "/login").into();
    settings["credential"] = json!({"name": SITE});
    let created = dev.http.post("/auth/connections", &settings).await?;
    Ok(format!("/auth/connections/{}", text(&created, "id")?))
}

/// Logs a connection in. Returns the states of the login, and the time until the last of them.
async fn log_in(dev: &Dev, path: &str) -> Result<(Vec<Value>, Duration)> {
    let start = Instant::now();
    dev.http.post(&format!("{path}/login"), &json!({})).await?;
    let events = dev.http.request(Method::GET, &format!("{path}/events"));
    let mut events = EventBlocks::open(events).await;
    let mut states: Vec<Value> = Vec::new();
    let mut elapsed = start.elapsed();
    while let Some((_, event)) = events.next().await {
        elapsed = start.elapsed();
        states.push(event);
    }
    match states.last() {
        Some(last) if last["flow_status"] == "SUCCESS" => Ok((states, elapsed)),
        _ => Err(format!("the login did not succeed: {states:#?}").into()),
    }
}
