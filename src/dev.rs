//! `berth dev`: control with browsers on this machine, ready to be tried.

use std::io::{self, Write};

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::{
    agent,
    control::{self, ControlError, Started, keys::KeyError, state_dir::StateDirError},
    shutdown::Shutdown,
};

/// Keeps the key of the first start for the next ones.
const KEY_FILE: &str = "dev-key";
const KEY_NAME: &str = "dev";

/// Options of `berth dev`.
#[derive(Debug, Clone, clap::Args)]
// It would have the name of the settings it contains.
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    pub control: control::settings::Settings,

    /// Print one line of JSON with base URL, key and docs page on standard output once it serves
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("cannot keep the key: {0}")]
    StateDir(#[from] StateDirError),
    #[error("cannot make the key: {0}")]
    Key(#[from] KeyError),
    #[error("cannot listen to signals: {0}")]
    Signals(io::Error),
}

/// What scripts that start it read.
#[derive(Serialize)]
struct Announcement<'a> {
    base_url: &'a str,
    api_key: &'a str,
    docs_url: &'a str,
}

/// Serves until a signal; ends every browser then.
pub async fn run(settings: &Settings, log: &str) -> Result<(), DevError> {
    let config = settings.control.check(log).map_err(ControlError::from)?;
    let shutdown = Shutdown::on_signals().map_err(DevError::Signals)?;
    let started = control::start(config, agent::document(), shutdown).await?;
    let key = key(&started).await?;
    let base_url = started.base_url();
    let announcement = Announcement {
        docs_url: &format!("{base_url}/docs/"),
        base_url: &base_url,
        api_key: key.expose_secret(),
    };
    // Connections are taken from here on. Nobody reading standard output is no reason not to serve.
    let _ = announcement.print(settings.json);
    Ok(started.run().await?)
}

/// The key of the first start, as long as it is good; else a new one.
async fn key(started: &Started) -> Result<SecretString, DevError> {
    let keys = &started.control.keys;
    if let Some(kept) = started.state_dir().read_secret(KEY_FILE)? {
        match keys.authenticate(kept.expose_secret()).await {
            Ok(_) => return Ok(kept),
            Err(KeyError::Store(error)) => return Err(KeyError::Store(error).into()),
            Err(reason) => tracing::warn!(%reason, "the kept key is of no use; making a new one"),
        }
    }
    let (_, fresh) = keys.create(KEY_NAME, None, None).await?;
    started
        .state_dir()
        .write_secret(KEY_FILE, fresh.expose_secret())?;
    Ok(fresh)
}

impl Announcement<'_> {
    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
        } else {
            let Self {
                base_url,
                api_key,
                docs_url,
            } = self;
            writeln!(
                out,
                "Berth is up.\n\n  Base URL  {base_url}\n  API key   {api_key}\n  Docs      {docs_url}\n\n\
                 Start a browser:\n\n  curl -X POST {base_url}/browsers \\\n    -H 'Authorization: Bearer {api_key}' \\\n    \
                 -H 'Content-Type: application/json' \\\n    -d '{{\"timeout_seconds\": 600}}'\n"
            )?;
        }
        out.flush()
    }
}
