//! The command line: commands, options and the sources of their values.
//!
//! ```text
//! option  >  environment variable  >  configuration file  >  default
//! ```
//!
//! - `config_file` turns the keys of the TOML file into defaults of the options.
//! - `documents` generates man pages and completions.
//! - `logs` initializes logging from the common options.
//!
//! The settings themselves are declared where they are used: `agent::settings`,
//! `control::settings`, `dev`.

mod config_file;
mod documents;
mod logs;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use config_file::ConfigFileError;
pub use documents::{Completions, ManPages};
pub use logs::{LogFormat, LogGuard, LogSink, init_logging, print_error};

/// Browsers for agents, tests and data work.
#[derive(Debug, Parser)]
#[command(name = "berth", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    #[command(flatten)]
    pub common: Common,
}

/// Options of all commands.
#[derive(Debug, Args)]
pub struct Common {
    /// Configuration file (TOML, a table per command); options and environment override it
    #[arg(long, env = config_file::VARIABLE, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Log filter: a level, or comma-separated `target=level` pairs
    #[arg(
        long,
        env = "BERTH_LOG",
        global = true,
        default_value = "info,sea_orm_migration=warn",
        value_name = "FILTER"
    )]
    pub log: String,

    /// Log format
    #[arg(long, env = "BERTH_LOG_FORMAT", global = true, default_value = "auto")]
    pub log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent: the daemon that runs and controls one browser
    Agent(Box<crate::agent::settings::Settings>),
    /// Run the control plane: the server that creates browsers and manages API keys and projects
    Control(crate::control::settings::Settings),
    /// Run the control plane with browsers on this machine and a generated API key
    Dev(crate::dev::Settings),
    /// Manage profiles
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Manage API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Migrate or check the database of control
    #[command(subcommand)]
    Database(DatabaseCommand),
    /// Manage the keys that encrypt stored secrets
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Check the settings of a command without starting it
    #[command(subcommand)]
    Check(CheckCommand),
    /// Print the OpenAPI document of a server
    Openapi(OpenapiArgs),
    /// Print the completions of a shell
    Completions(Completions),
    /// Write the manual as man pages
    ManPages(ManPages),
    /// Collect the settings that this machine was started with, for the agent of the VM image
    MachineSettings(crate::machine_settings::MachineSettings),
    /// Serve the hooks of a machine that others are resumed from, for the VM image
    MachineHooks(crate::machine_hooks::MachineHooks),
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Import a profile of Chrome or Chromium on this machine
    Import(crate::profile_import::ImportOptions),
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create an API key and print its secret, which cannot be shown again
    Create(crate::control::key_create::KeyCreate),
}

#[derive(Debug, Subcommand)]
pub enum DatabaseCommand {
    /// Apply the migrations that the database lacks, as control does at its start
    Migrate(crate::control::database::DatabaseOptions),
    /// Check that the database can be used, without changing it
    Check(crate::control::database::DatabaseOptions),
}

/// The commands below `berth secrets`.
#[derive(Debug, clap::Subcommand)]
pub enum SecretsCommand {
    /// List the keys, and how many data keys need each
    Status(crate::control::secrets::rotation::SecretsOptions),
    /// Wrap all data keys with the first of the keys
    Rotate(crate::control::secrets::rotation::RotateOptions),
    /// Mark a key that nothing needs as one that is never used again
    Retire(crate::control::secrets::rotation::RetireOptions),
}

/// The command whose settings are checked.
#[derive(Debug, Subcommand)]
pub enum CheckCommand {
    /// Check the settings of `berth agent`
    Agent(Box<crate::agent::settings::Settings>),
    /// Check the settings of `berth control`
    Control(crate::control::settings::Settings),
    /// Check the settings of `berth dev`
    Dev(crate::dev::Settings),
}

#[derive(Debug, Args)]
pub struct OpenapiArgs {
    /// Server whose OpenAPI document is printed
    pub server: ServerName,
}

/// The two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerName {
    Agent,
    Control,
}

/// A command line that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Usage(#[from] clap::Error),
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
}

/// Returns the definition of the command `berth agent`.
#[must_use]
pub fn agent_command() -> clap::Command {
    <crate::agent::settings::Settings as Args>::augment_args(clap::Command::new("agent"))
}

impl Cli {
    /// Parses the command line, with the environment and the configuration file as defaults.
    ///
    /// # Errors
    /// Fails if an option or the configuration file is invalid, and for `--help` and `--version`.
    pub fn resolve(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let command = config_file::apply(Self::command(), &arguments)?;
        let matches = command.try_get_matches_from(arguments)?;
        Ok(Self::from_arg_matches(&matches)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn control_permits_http_logins_only_on_request() {
        for (options, expected) in [
            (&[][..], false),
            (&["--allow-http-logins"], true),
            (&["--allow-http-logins=true"], true),
            (&["--allow-http-logins=false"], false),
        ] {
            let control = ["berth", "control", "--state-dir", "state"];
            let cli = Cli::parse_from([&control[..], options].concat());
            let Command::Control(settings) = cli.command else {
                panic!("another command");
            };
            let config = settings.check("info").unwrap();
            assert_eq!(config.allow_http_logins, expected, "{options:?}");
        }
    }
}
