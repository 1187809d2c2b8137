//! The command line: what the binary can be asked, and where its settings come from.

mod config_file;
mod logs;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use config_file::ConfigFileError;
pub use logs::{Keep, LogFormat, start_logs};

/// Browsers for agents, tests and data work.
#[derive(Debug, Parser)]
#[command(name = "berth", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    #[command(flatten)]
    pub common: Common,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct Common {
    /// TOML file with a table per command; options and environment win over it
    #[arg(long, env = config_file::VARIABLE, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// What to log: a level, or `target=level` pairs
    #[arg(
        long,
        env = "BERTH_LOG",
        global = true,
        default_value = "info,sea_orm_migration=warn",
        value_name = "FILTER"
    )]
    pub log: String,

    /// How to log: to the journal under systemd, else as text on standard error
    #[arg(long, env = "BERTH_LOG_FORMAT", global = true, default_value = "auto")]
    pub log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon beside one browser
    Agent(Box<crate::agent::settings::Settings>),
    /// Serve browsers, API keys and projects to clients
    Control(crate::control::settings::Settings),
    /// Control with browsers on this machine, a key made at the first start
    Dev(crate::dev::Settings),
    /// API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Check the settings of a command and start nothing
    #[command(subcommand)]
    Check(CheckCommand),
    /// Print the OpenAPI document of a server
    Openapi(OpenapiArgs),
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key; it is printed once
    Create(crate::control::key_create::KeyCreate),
}

/// Whose settings to check: with the options of that command.
#[derive(Debug, Subcommand)]
pub enum CheckCommand {
    /// Those of `berth agent`
    Agent(Box<crate::agent::settings::Settings>),
    /// Those of `berth control`
    Control(crate::control::settings::Settings),
    /// Those of `berth dev`
    Dev(crate::dev::Settings),
}

#[derive(Debug, Args)]
pub struct OpenapiArgs {
    /// Whose document
    pub server: ServerName,
}

/// The two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerName {
    Agent,
    Control,
}

/// Why the command line cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Usage(#[from] clap::Error),
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
}

impl Cli {
    /// Options first, then the environment, then the configuration file, then the defaults.
    ///
    /// # Errors
    /// Where an option or the configuration file is wrong; asking for help is such an error too.
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
    fn the_commands_do_not_contradict_themselves() {
        Cli::command().debug_assert();
    }
}
