//! Logins at a form with user name and password by a stored credential, compared with a script of
//! Playwright in a warm Node process.
//!
//! Berth is measured from the request to the event with the success, which follows the save of the
//! profile. The script does what a user would write instead: it starts a Chromium with the same
//! flags and a directory for the profile, logs in, closes Chromium, so that everything is written,
//! and packs the directory. That is what Berth keeps, too: any host can continue with it.
//! Playwright's storage state would be less: cookies and storage, but no service workers, caches
//! and permissions. The script is measured inside its process, on a display that is ready.
//!
//! A renewed login begins with the profile of the login before, whose session has expired.

use std::{fs, path::PathBuf, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{SITE, connect, log_in, store_credential};
use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Dev, LoginSites, NodeLogins, Result, text, until},
};

const ROUNDS: usize = 20;
/// The time for the browsers that have started to come to rest.
const REST: Duration = Duration::from_millis(500);
const BASELINE: &str = "a script of Playwright, display ready";

/// The milliseconds of logins and of their parts.
#[derive(Clone, Default)]
struct Measured {
    total: Samples,
    /// Until the browser with the profile is usable.
    start: Samples,
    /// From the opening of the login page to the proof of the login.
    pages: Samples,
    save: Samples,
}

/// The first login of a connection, and a renewed one.
#[derive(Default)]
struct Pair {
    first: Measured,
    renewed: Measured,
}

/// A server with the credential for the site.
struct Server {
    dev: Dev,
    state: TempDir,
    /// Whether its host waits for a browser. Otherwise each browser gets a new one.
    has_ready_host: bool,
}

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let sites = LoginSites::serve().await;
    let ready = Server::start(&sites, true).await?;
    let new = Server::start(&sites, false).await?;
    let flags = [sites.resolver_flag(), sites.certificate_flag()];
    let flags = flags.map(|flag| flag.trim_start_matches("--chromium-flag=").to_owned());
    let script = NodeLogins::start(agent, &flags).await?;
    let (mut on_ready, mut on_new, mut by_script) = <(Pair, Pair, Pair)>::default();
    for round in 0..ROUNDS {
        ready.measure(&mut on_ready, &sites, round).await?;
        measure_script(&mut by_script, &script, &sites).await?;
        new.measure(&mut on_new, &sites, round).await?;
    }
    script.stop().await?;
    ready.dev.stop().await?;
    new.dev.stop().await?;
    for (subject, on_ready, on_new, by_script) in [
        ("first login", on_ready.first, on_new.first, by_script.first),
        (
            "renewed login",
            on_ready.renewed,
            on_new.renewed,
            by_script.renewed,
        ),
    ] {
        let mut compare = |name: &str, berth, script: &Samples| {
            let name = format!("{subject}, {name}");
            figures.compare(name, "ms", berth, BASELINE, script.clone());
        };
        compare("host ready", on_ready.total, &by_script.total);
        compare("host ready: start", on_ready.start, &by_script.start);
        compare("host ready: pages", on_ready.pages, &by_script.pages);
        compare("host ready: save", on_ready.save, &by_script.save);
        compare("new host", on_new.total, &by_script.total);
    }
    Ok(())
}

impl Server {
    async fn start(sites: &LoginSites, has_ready_host: bool) -> Result<Self> {
        let state = TempDir::new()?;
        let flags = [sites.resolver_flag(), sites.certificate_flag()];
        let mut options: Vec<&str> = flags.iter().map(String::as_str).collect();
        if has_ready_host {
            options.extend(["--fleet", "registered", "--agents", "1"]);
        }
        let dev = Dev::start_with(&state, &options, None).await?;
        store_credential(&dev, sites).await?;
        Ok(Self {
            dev,
            state,
            has_ready_host,
        })
    }

    async fn measure(&self, pair: &mut Pair, sites: &LoginSites, round: usize) -> Result<()> {
        let settings = json!({ "profile_name": format!("round-{round}") });
        let path = connect(&self.dev, sites, settings).await?;
        for measured in [&mut pair.first, &mut pair.renewed] {
            self.wait_for_host().await?;
            sleep(REST).await;
            self.log_in(measured, &path).await?;
            sites.expire_sessions_of(SITE);
        }
        // The next measurement is of another program.
        self.wait_for_host().await
    }

    async fn log_in(&self, measured: &mut Measured, path: &str) -> Result<()> {
        let began_at = Utc::now();
        let (mut states, elapsed) = log_in(&self.dev, path).await?;
        let ended = states.pop();
        // The site acts for the first time when its page is opened.
        let opened = states.iter().find(|state| state["who"] == "site");
        let (Some(ended), Some(opened), Some(saving)) = (ended, opened, states.last()) else {
            return Err(format!("the login has too few states: {states:#?}").into());
        };
        let [opened_at, saving_at, ended_at] =
            [time_of(opened)?, time_of(saving)?, time_of(&ended)?];
        let ms = |from: DateTime<Utc>, to: DateTime<Utc>| (to - from).as_seconds_f64() * 1e3;
        measured.total.add_ms(elapsed);
        measured.start.add(ms(began_at, opened_at));
        measured.pages.add(ms(opened_at, saving_at));
        measured.save.add(ms(saving_at, ended_at));
        Ok(())
    }

    /// Waits until the host is ready for the next browser, or until that of the last one is gone.
    async fn wait_for_host(&self) -> Result<()> {
        let hosts = self.state.path().join("hosts");
        until(|| async {
            if !self.has_ready_host {
                let remaining = fs::read_dir(&hosts).map_or(0, Iterator::count);
                return Ok((remaining == 0).then_some(()));
            }
            let hosts: Value = serde_json::from_slice(&self.dev.http.get("/fleet/hosts").await?)?;
            Ok((hosts[0]["state"] == "ready").then_some(()))
        })
        .await
    }
}

fn time_of(state: &Value) -> Result<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(&text(state, "timestamp")?)?;
    Ok(time.into())
}

async fn measure_script(pair: &mut Pair, script: &NodeLogins, sites: &LoginSites) -> Result<()> {
    let archive: PathBuf = script.state.path().join("archive");
    let mut from = None;
    for measured in [&mut pair.first, &mut pair.renewed] {
        let request = json!({
            "url": sites.secure_url(SITE, "/login"),
            "member": sites.secure_url(SITE, "/account"),
            "credential": {"username": sites.ada.user, "password": sites.ada.password},
            "from": from,
            "to": archive,
        });
        sleep(REST).await;
        let times = script.http.post("", &request).await?;
        let part = |name: &str| {
            let time = times[name].as_f64();
            time.ok_or_else(|| format!("the script did not log in: {times}"))
        };
        measured.total.add(part("total")?);
        measured.start.add(part("start")?);
        measured.pages.add(part("pages")?);
        measured.save.add(part("save")?);
        from = Some(archive.clone());
        sites.expire_sessions_of(SITE);
    }
    Ok(())
}
