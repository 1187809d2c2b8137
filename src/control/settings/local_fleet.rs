//! The settings of browsers on this machine.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{SettingsError, StopDeadlines};
use crate::system::{
    cdp::chromium_flags::{ChromiumFlags, Variable},
    script::location::find_script_worker,
};

/// The environment variable for additional Chromium flags.
#[derive(Debug, Clone)]
pub struct FlagsVariable;

impl Variable for FlagsVariable {
    const NAME: &'static str = "BERTH_CHROMIUM_FLAGS";
}

/// The options for browsers on this machine.
#[derive(Debug, Clone, clap::Args)]
pub struct FleetSettings {
    /// Maximum number of active browsers (1–1000)
    #[arg(long, env = "BERTH_MAX_BROWSERS", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub max_browsers: u32,

    /// Number of hosts that are kept for further browsers when their browser has ended (0–1000)
    #[arg(long, env = "BERTH_IDLE_HOSTS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000), value_name = "N")]
    pub idle_hosts: u32,

    /// Seconds in which a new browser must become ready (1–600)
    #[arg(long, env = "BERTH_START_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600), value_name = "SECONDS")]
    pub start_seconds: u64,

    /// Program of the agent, run as `PATH agent` [default: this program]
    #[arg(long, env = "BERTH_AGENT_PROGRAM", value_name = "PATH")]
    pub agent_program: Option<PathBuf>,

    /// Chromium program [default: the first one found in the usual places]
    #[arg(long, env = "BERTH_CHROMIUM", value_name = "PATH")]
    pub chromium: Option<PathBuf>,

    #[command(flatten)]
    pub chromium_flags: ChromiumFlags<FlagsVariable>,

    /// Script worker program [default: berth-script beside the agent's program or in ../lib/berth]
    #[arg(long, env = "BERTH_SCRIPT_WORKER", value_name = "PATH")]
    pub script_worker: Option<PathBuf>,

    /// Warm script workers per browser, started and attached in advance (0–16), and four times as
    /// many for scripts that do not use the browser [default: 2]
    #[arg(long, env = "BERTH_WARM_WORKERS", value_parser = clap::value_parser!(u32).range(0..=16), value_name = "N")]
    pub warm_workers: Option<u32>,

    /// Maximum number of scripts that run at once in one browser (1–64) [default: 8]
    #[arg(long, env = "BERTH_MAX_EXECUTES", value_parser = clap::value_parser!(u32).range(1..=64), value_name = "N")]
    pub max_executes: Option<u32>,

    /// Passed to agents, which read their own table in the configuration file.
    #[arg(from_global)]
    config: Option<PathBuf>,
}

/// The validated configuration of browsers on this machine.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    pub max_browsers: u32,
    pub idle_hosts: u32,
    pub start_timeout: Duration,
    pub stop_deadlines: StopDeadlines,
    pub agent_program: PathBuf,
    /// The programs that agents and browsers run, as far as the settings name them.
    pub programs: Vec<PathBuf>,
    /// Options passed to every agent. They take precedence over the configuration file.
    pub agent_options: Vec<OsString>,
}

impl FleetSettings {
    pub(super) fn check(
        &self,
        log: &str,
        stop_deadlines: StopDeadlines,
    ) -> Result<FleetConfig, SettingsError> {
        let agent_program = match &self.agent_program {
            Some(path) => existing_file("agent-program", path)?,
            None => std::env::current_exe().map_err(SettingsError::OwnProgram)?,
        };
        let chromium = optional_file("chromium", self.chromium.as_deref())?;
        let script_worker = optional_file("script-worker", self.script_worker.as_deref())?;
        let default_worker = find_script_worker(&agent_program);
        let programs = [
            Some(agent_program.clone()),
            Some(script_worker.clone().unwrap_or(default_worker)),
            chromium.clone(),
        ];
        Ok(FleetConfig {
            max_browsers: self.max_browsers,
            idle_hosts: self.idle_hosts,
            start_timeout: Duration::from_secs(self.start_seconds),
            stop_deadlines,
            agent_program,
            programs: programs.into_iter().flatten().collect(),
            agent_options: self.agent_options(log, chromium, script_worker)?,
        })
    }

    /// Returns the options that are passed to every agent.
    fn agent_options(
        &self,
        log: &str,
        chromium: Option<PathBuf>,
        script_worker: Option<PathBuf>,
    ) -> Result<Vec<OsString>, SettingsError> {
        let mut options = Vec::new();
        let mut add = |name: &str, value: OsString| {
            let mut option = OsString::from(format!("--{name}="));
            option.push(value);
            options.push(option);
        };
        add("log", log.into());
        // JSON, because control parses the lines and copies them into its own log.
        add("log-format", "json".into());
        if let Some(path) = chromium {
            add("chromium", path.into());
        }
        if let Some(path) = script_worker {
            add("script-worker", path.into());
        }
        if let Some(count) = self.warm_workers {
            add("warm-workers", count.to_string().into());
        }
        if let Some(count) = self.max_executes {
            add("max-executes", count.to_string().into());
        }
        let flags = self.chromium_flags.check();
        for flag in flags.map_err(SettingsError::ChromiumFlags)? {
            add("chromium-flag", flag.into());
        }
        if let Some(path) = &self.config {
            add("config", existing_file("config", path)?.into());
        }
        Ok(options)
    }
}

/// Returns the absolute path of a file that an option names.
fn existing_file(option: &'static str, path: &Path) -> Result<PathBuf, SettingsError> {
    let absolute = std::path::absolute(path).ok().filter(|path| path.is_file());
    absolute.ok_or_else(|| SettingsError::NoFile {
        option,
        path: path.display().to_string(),
    })
}

fn optional_file(
    option: &'static str,
    path: Option<&Path>,
) -> Result<Option<PathBuf>, SettingsError> {
    path.map(|path| existing_file(option, path)).transpose()
}
