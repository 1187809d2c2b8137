//! Filling a login form, by the agent and through control, compared with Playwright's `fill` and
//! `click` in a warm Node process.
//!
//! Playwright is measured inside its process, Berth with its HTTP requests. Before each sample the
//! page is loaded anew.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, BareChromium, Browser, Dev, Http, NodeDaemon, Result, Site, text},
};

const ROUNDS: usize = 100;
const USER_NAME: &str = "ada.lovelace";
const PASSWORD: &str = "correct horse";

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let url = site.login();
    let chromium = BareChromium::start(agent).await?;
    let daemon = NodeDaemon::start(&chromium.ws_url).await?;
    let dev = Dev::start().await?;
    let browser = dev.create_browser().await?;
    let credential = json!({
        "name": "bench",
        "domain": "shop.example",
        "values": {"username": USER_NAME, "password": PASSWORD},
    });
    dev.http.post("/credentials", &credential).await?;
    for submit in [false, true] {
        let (mut by_agent, mut by_control, mut by_playwright) =
            (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            show(&agent.http, "", &url).await?;
            by_agent.add_ms(fill_by_agent(agent, submit).await?);
            show(&dev.http, &format!("/browsers/{}", browser.id), &url).await?;
            by_control.add_ms(fill_by_control(&dev, &browser, submit).await?);
            by_playwright.add(fill_by_playwright(&daemon, &url, submit).await?);
        }
        let (name, baseline) = match submit {
            false => ("fill a login form", "Playwright's fill"),
            true => (
                "fill and submit a login form",
                "Playwright's fill and click",
            ),
        };
        let direct = format!("{name}, by the agent");
        figures.compare(direct, "ms", by_agent, baseline, by_playwright.clone());
        let through = format!("{name}, through control");
        figures.compare(through, "ms", by_control, baseline, by_playwright);
    }
    dev.delete_browser(&browser).await?;
    dev.stop().await?;
    daemon.stop().await?;
    chromium.stop().await
}

/// Loads the page in the tab in front.
async fn show(http: &Http, browser: &str, url: &str) -> Result<()> {
    let code = format!("await page.goto({}); return page.title()", json!(url));
    let path = format!("{browser}/automation/execute");
    let shown = http.post(&path, &json!({ "code": code })).await?;
    match shown["result"] == "login" {
        true => Ok(()),
        false => Err(format!("could not open {url}: {shown}").into()),
    }
}

async fn fill_by_agent(agent: &Agent, submit: bool) -> Result<Duration> {
    let request = json!({
        "domain": "localhost",
        "values": {"username": USER_NAME, "password": PASSWORD},
        "submit": submit,
    });
    fill(&agent.http, "/credentials/fill", &request).await
}

async fn fill_by_control(dev: &Dev, browser: &Browser, submit: bool) -> Result<Duration> {
    let request = json!({
        "credential": "bench",
        "allowed_domains": ["localhost"],
        "submit": submit,
    });
    let path = format!("/browsers/{}/credentials/fill", browser.id);
    fill(&dev.http, &path, &request).await
}

async fn fill(http: &Http, path: &str, request: &Value) -> Result<Duration> {
    let start = Instant::now();
    let filled = http.post(path, request).await?;
    let duration = start.elapsed();
    let fields = filled["fields"].as_array().into_iter().flatten();
    let count = fields.filter(|field| field["outcome"] == "filled").count();
    if count == 2 && filled["submitted"] == request["submit"] {
        return Ok(duration);
    }
    Err(format!("not filled: {filled}").into())
}

/// Returns the milliseconds of Playwright's calls.
async fn fill_by_playwright(daemon: &NodeDaemon, url: &str, submit: bool) -> Result<f64> {
    let click = if submit {
        "await page.click('button');"
    } else {
        ""
    };
    let code = format!(
        "await page.goto({}); const start = performance.now();
        await page.fill('[name=user]', {}); await page.fill('[name=pass]', {}); {click}
        return performance.now() - start;",
        json!(url),
        json!(USER_NAME),
        json!(PASSWORD)
    );
    let filled = daemon
        .http
        .post("/automation/execute", &json!({ "code": code }))
        .await?;
    let duration = filled["result"].as_f64();
    Ok(duration.ok_or_else(|| {
        format!(
            "Playwright failed: {}",
            text(&filled, "error").unwrap_or_default()
        )
    })?)
}
