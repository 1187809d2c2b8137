//! What control can be told when it starts, and the checked form of it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use url::Url;

use super::state_dir::{StateDir, StateDirError};
use crate::system::cdp::chromium_flags::{ChromiumFlags, Variable};

/// Options of `berth control` and `berth dev`.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "BERTH_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDR:PORT"
    )]
    pub listen: SocketAddr,

    #[command(flatten)]
    pub state: StateSettings,

    /// Where clients reach this server, where that is not what their requests say (behind a proxy, say)
    #[arg(long, env = "BERTH_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<Url>,

    /// Seconds everything has to end in when the server is stopped (1–300)
    #[arg(long, env = "BERTH_STOP_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    pub stop_seconds: u64,

    /// Days the record of an ended browser is kept (1–3650)
    #[arg(long, env = "BERTH_KEEP_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    pub keep_days: u32,

    /// Days a replay is kept after its end (1–3650)
    #[arg(long, env = "BERTH_KEEP_REPLAY_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3650), value_name = "DAYS")]
    pub keep_replay_days: u32,

    /// MiB that kept replays may have taken for another one to be started (1–16777216)
    #[arg(long, env = "BERTH_REPLAYS_MB", default_value_t = 20_480, value_parser = clap::value_parser!(u64).range(1..=16_777_216), value_name = "MIB")]
    pub replays_mb: u64,

    #[command(flatten)]
    pub fleet: FleetSettings,
}

/// Where the state is.
#[derive(Debug, Clone, clap::Args)]
pub struct StateSettings {
    /// Folder for the database, the secrets and the browsers' data [default: $XDG_STATE_HOME/berth or ~/.local/state/berth]
    #[arg(long, env = "BERTH_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    #[arg(long, env = "XDG_STATE_HOME", hide = true)]
    xdg_state_home: Option<PathBuf>,

    #[arg(long, env = "HOME", hide = true)]
    home: Option<PathBuf>,
}

/// Where flags more for every Chromium can be given as well.
#[derive(Debug, Clone)]
pub struct FlagsVariable;

impl Variable for FlagsVariable {
    const NAME: &'static str = "BERTH_CHROMIUM_FLAGS";
}

/// How browsers are started on this machine.
#[derive(Debug, Clone, clap::Args)]
pub struct FleetSettings {
    /// Browsers that may live at once (1–1000)
    #[arg(long, env = "BERTH_MAX_BROWSERS", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub max_browsers: u32,

    /// Seconds a new browser has to come up in (1–600)
    #[arg(long, env = "BERTH_START_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600), value_name = "SECONDS")]
    pub start_seconds: u64,

    /// The program that serves one browser as `PATH agent` [default: this one]
    #[arg(long, env = "BERTH_AGENT_PROGRAM", value_name = "PATH")]
    pub agent_program: Option<PathBuf>,

    /// Chromium's program [default: the first found in the usual places]
    #[arg(long, env = "BERTH_CHROMIUM", value_name = "PATH")]
    pub chromium: Option<PathBuf>,

    #[command(flatten)]
    pub chromium_flags: ChromiumFlags<FlagsVariable>,

    /// The script worker's program [default: berth-script beside the agent's program]
    #[arg(long, env = "BERTH_SCRIPT_WORKER", value_name = "PATH")]
    pub script_worker: Option<PathBuf>,

    /// Script workers every browser keeps started and attached (0–16) [default: 2]
    #[arg(long, env = "BERTH_WARM_WORKERS", value_parser = clap::value_parser!(u32).range(0..=16), value_name = "N")]
    pub warm_workers: Option<u32>,

    /// Scripts that may run at once in one browser (1–64) [default: 8]
    #[arg(long, env = "BERTH_MAX_EXECUTES", value_parser = clap::value_parser!(u32).range(1..=64), value_name = "N")]
    pub max_executes: Option<u32>,

    /// Its table for agents is theirs to read.
    #[arg(from_global)]
    config: Option<PathBuf>,
}

/// The settings, checked and resolved.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Not looked at yet.
    pub state_dir: PathBuf,
    pub public_url: Option<Url>,
    pub shutdown_grace_period: Duration,
    /// How long the record of an ended browser is kept.
    pub keep_records: Duration,
    /// How long a replay is kept after its end.
    pub keep_replays: Duration,
    /// What kept replays may have taken for another one to be started.
    pub replay_bytes: u64,
    pub fleet: FleetConfig,
}

/// How browsers are started on this machine, checked and resolved.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    pub max_browsers: u32,
    pub start_timeout: Duration,
    pub agent_program: PathBuf,
    /// What browsers run, this one included, as far as settings name it.
    pub programs: Vec<PathBuf>,
    /// Options every agent gets besides its own; they win over the configuration file's.
    pub agent_options: Vec<std::ffi::OsString>,
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("--public-url: {0}")]
    PublicUrl(&'static str),
    #[error("--{option}: {path} is not a file")]
    NoFile { option: &'static str, path: String },
    #[error("--chromium-flag: {}", .0.join("; "))]
    ChromiumFlags(Vec<String>),
    #[error("cannot tell where this program is: {0}; give it with --agent-program")]
    OwnProgram(std::io::Error),
}

impl StateSettings {
    /// Where the folder is, or is to be.
    pub fn path(&self) -> Result<PathBuf, StateDirError> {
        match &self.state_dir {
            Some(path) => Ok(path.clone()),
            None => StateDir::default_path(self.xdg_state_home.as_deref(), self.home.as_deref()),
        }
    }
}

impl Settings {
    /// Checks everything and starts nothing. Agents are to log what `log` lets through, as this program does.
    pub fn check(&self, log: &str) -> Result<Config, SettingsError> {
        if let Some(url) = &self.public_url {
            if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
                return Err(SettingsError::PublicUrl("must be an http or https URL"));
            }
            if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
                return Err(SettingsError::PublicUrl(
                    "must have no user, query or fragment",
                ));
            }
        }
        Ok(Config {
            listen: self.listen,
            state_dir: self.state.path()?,
            public_url: self.public_url.clone(),
            shutdown_grace_period: Duration::from_secs(self.stop_seconds),
            keep_records: days(self.keep_days),
            keep_replays: days(self.keep_replay_days),
            replay_bytes: self.replays_mb << 20,
            fleet: self.fleet.check(log)?,
        })
    }
}

fn days(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 24 * 60 * 60)
}

impl FleetSettings {
    fn check(&self, log: &str) -> Result<FleetConfig, SettingsError> {
        let file = |option: &'static str, path: &Path| {
            let absolute = std::path::absolute(path).ok().filter(|path| path.is_file());
            absolute.ok_or_else(|| SettingsError::NoFile {
                option,
                path: path.display().to_string(),
            })
        };
        let agent_program = match &self.agent_program {
            Some(path) => file("agent-program", path)?,
            None => std::env::current_exe().map_err(SettingsError::OwnProgram)?,
        };
        let chromium = self.chromium.as_deref().map(|path| file("chromium", path));
        let chromium = chromium.transpose()?;
        let script_worker = self.script_worker.as_deref();
        let script_worker = script_worker.map(|path| file("script-worker", path));
        let script_worker = script_worker.transpose()?;
        let usual_worker = agent_program.with_file_name("berth-script");
        let programs = [
            Some(agent_program.clone()),
            Some(script_worker.clone().unwrap_or(usual_worker)),
            chromium.clone(),
        ];
        let mut options = Vec::new();
        let mut option = |name: &str, value: std::ffi::OsString| {
            let mut option = std::ffi::OsString::from(format!("--{name}="));
            option.push(value);
            options.push(option);
        };
        option("log", log.into());
        // Its lines are read and told again.
        option("log-format", "json".into());
        if let Some(path) = chromium {
            option("chromium", path.into());
        }
        if let Some(path) = script_worker {
            option("script-worker", path.into());
        }
        if let Some(count) = self.warm_workers {
            option("warm-workers", count.to_string().into());
        }
        if let Some(count) = self.max_executes {
            option("max-executes", count.to_string().into());
        }
        let flags = self.chromium_flags.check();
        for flag in flags.map_err(SettingsError::ChromiumFlags)? {
            option("chromium-flag", flag.into());
        }
        if let Some(path) = &self.config {
            option("config", file("config", path)?.into());
        }
        Ok(FleetConfig {
            max_browsers: self.max_browsers,
            start_timeout: Duration::from_secs(self.start_seconds),
            agent_program,
            programs: programs.into_iter().flatten().collect(),
            agent_options: options,
        })
    }
}
