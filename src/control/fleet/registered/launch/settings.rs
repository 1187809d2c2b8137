//! The settings of launched hosts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::control::settings::SettingsError;

/// The options for engines that launch a host when control runs a command.
#[derive(Debug, Clone, clap::Args)]
pub struct LaunchSettings {
    /// Program that launches a machine whose agent joins this server, with --fleet registered; it
    /// needs --destroy-command
    #[arg(long, env = "BERTH_LAUNCH_COMMAND", value_name = "PATH")]
    pub launch_command: Option<PathBuf>,

    /// Program that destroys a launched machine; it needs --launch-command
    #[arg(long, env = "BERTH_DESTROY_COMMAND", value_name = "PATH")]
    pub destroy_command: Option<PathBuf>,

    /// Maximum number of launched machines, with those that are being destroyed (1–1000)
    #[arg(long, env = "BERTH_MAX_LAUNCHED_HOSTS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub max_launched_hosts: u32,

    /// Seconds in which the launch or destroy command must exit (1–3600)
    #[arg(long, env = "BERTH_LAUNCH_SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    pub launch_seconds: u64,

    /// Seconds in which the host of a launched machine must join, and then become ready (1–3600)
    #[arg(long, env = "BERTH_LAUNCHED_HOST_JOIN_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    pub launched_host_join_seconds: u64,

    /// Seconds for which a launched host may be ready without a browser (1–86400)
    #[arg(long, env = "BERTH_LAUNCHED_HOST_IDLE_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400), value_name = "SECONDS")]
    pub launched_host_idle_seconds: u64,
}

/// The checked settings of launched hosts.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    pub launch_command: PathBuf,
    pub destroy_command: PathBuf,
    pub max_hosts: u32,
    pub command_timeout: Duration,
    pub join_timeout: Duration,
    pub idle_timeout: Duration,
}

impl LaunchSettings {
    /// Checks the settings. Returns `None` if there are no commands.
    pub fn check(&self) -> Result<Option<LaunchConfig>, SettingsError> {
        let (launch, destroy) = match (&self.launch_command, &self.destroy_command) {
            (None, None) => return Ok(None),
            (Some(launch), Some(destroy)) => (launch, destroy),
            _ => {
                let message = "one needs the other: every launched machine is destroyed";
                return Err(SettingsError::LaunchCommands(message));
            }
        };
        Ok(Some(LaunchConfig {
            launch_command: program("launch-command", launch)?,
            destroy_command: program("destroy-command", destroy)?,
            max_hosts: self.max_launched_hosts,
            command_timeout: Duration::from_secs(self.launch_seconds),
            join_timeout: Duration::from_secs(self.launched_host_join_seconds),
            idle_timeout: Duration::from_secs(self.launched_host_idle_seconds),
        }))
    }
}

/// Returns the absolute path of a program.
fn program(option: &'static str, path: &Path) -> Result<PathBuf, SettingsError> {
    let absolute = std::path::absolute(path).ok().filter(|path| path.is_file());
    absolute.ok_or_else(|| SettingsError::NoFile {
        option,
        path: path.display().to_string(),
    })
}
