//! The command `berth dev`: control with an API key and browsers on this machine.
//!
//! With `--fleet registered`, [`agents`] starts agents that join control by token. With `--vm`,
//! control launches [`machines`] instead.

use std::io::{self, Write};

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::{
    agent,
    control::{
        self, ControlError, Started, fleet::registered::JoinTokenError, keys::KeyError,
        state_dir::StateDirError, store::Fleet,
    },
    shutdown::Shutdown,
    system::outbound::AllowedNetwork,
};

mod agents;
mod machines;

/// Stores the key of the first start for later ones.
const KEY_FILE: &str = "dev-key";
const KEY_NAME: &str = "dev";

/// Options of `berth dev`.
#[derive(Debug, Clone, clap::Args)]
// Without this the group would have the same name as that of the flattened settings.
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    pub control: control::settings::Settings,

    /// Number of agents to start on this machine with --fleet registered (0–16); they join by token
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=16), value_name = "N")]
    pub agents: u32,

    /// Run each browser in a machine of the VM image, with the commands of the package berth-vm
    #[arg(long, conflicts_with_all = ["agents", "launch_command", "destroy_command"])]
    pub vm: bool,

    /// Print base URL, API key and API reference as one line of JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Why `berth dev` does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("cannot store the API key: {0}")]
    StateDir(#[from] StateDirError),
    #[error("cannot create the API key: {0}")]
    Key(#[from] KeyError),
    #[error("cannot create a join token: {0}")]
    JoinToken(#[from] JoinTokenError),
    #[error("cannot create directory {path}: {source}")]
    AgentDirectory { path: String, source: io::Error },
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot determine the path of this program: {0}")]
    Program(io::Error),
    #[error("--vm needs the package berth-vm: no {0} in ../lib/berth beside this program")]
    NoCommand(&'static str),
}

impl Settings {
    /// Validates the settings without side effects. `log` is the log filter of the agents, too.
    ///
    /// # Errors
    /// Fails if a setting is invalid, or if something that it needs is not installed.
    pub fn check(&self, log: &str) -> Result<control::settings::Config, DevError> {
        let checked = match self.vm {
            true => machines::with_machines(&self.control)?.check(log),
            false => self.control.check(log),
        };
        Ok(checked.map_err(ControlError::from)?)
    }
}

/// The output for scripts that start the server.
#[derive(Serialize)]
struct Announcement<'a> {
    base_url: &'a str,
    api_key: &'a str,
    docs_url: &'a str,
}

/// Serves until a signal stops it, then ends every browser.
pub async fn run(settings: &Settings, log: &str) -> Result<(), DevError> {
    let mut config = settings.check(log)?;
    if config.providers.allowed_networks.is_empty() {
        config.providers.allowed_networks = AllowedNetwork::LOOPBACK.to_vec();
    }
    let networks = config.providers.allowed_networks.iter();
    let networks: Vec<_> = networks.map(ToString::to_string).collect();
    let option = format!("--allow-networks={}", networks.join(","));
    config.fleet.agent_options.push(option.into());
    config.allow_http_logins = settings.control.allow_http_logins.unwrap_or(true);
    let shutdown = Shutdown::on_signals().map_err(DevError::Signals)?;
    let started = control::start(config, agent::document(), None, shutdown).await?;
    let key = valid_key(&started).await?;
    if settings.control.host_fleet == Fleet::Registered && !settings.vm {
        let caller = started.control.keys.authenticate(key.expose_secret());
        agents::start(&started, &caller.await?, settings.agents).await?;
    }
    let base_url = started.base_url();
    let announcement = Announcement {
        docs_url: &format!("{base_url}/docs/"),
        base_url: &base_url,
        api_key: key.expose_secret(),
    };
    // The server accepts connections from here on. It serves even if standard output is closed.
    let _ = announcement.print(settings.json);
    Ok(started.run().await?)
}

/// Returns the stored key, or a new one if there is none or it is no longer valid.
async fn valid_key(started: &Started) -> Result<SecretString, DevError> {
    let keys = &started.control.keys;
    if let Some(stored) = started.state_dir().read_secret(KEY_FILE)? {
        match keys.authenticate(stored.expose_secret()).await {
            Ok(_) => return Ok(stored),
            Err(KeyError::Store(error)) => return Err(KeyError::Store(error).into()),
            Err(error) => tracing::warn!(%error, "stored API key is invalid; creating a new one"),
        }
    }
    let (_, created) = keys.create(KEY_NAME, None, None).await?;
    started
        .state_dir()
        .write_secret(KEY_FILE, created.expose_secret())?;
    Ok(created)
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
                "Berth is ready.\n\n  Base URL  {base_url}\n  API key   {api_key}\n  Console   {base_url}/\n  Docs      {docs_url}\n\n\
                 Create a browser:\n\n  curl -X POST {base_url}/browsers \\\n    -H 'Authorization: Bearer {api_key}' \\\n    \
                 -H 'Content-Type: application/json' \\\n    -d '{{\"timeout_seconds\": 600}}'\n"
            )?;
        }
        out.flush()
    }
}
