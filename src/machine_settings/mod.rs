//! The settings that a machine of the VM image is started with.
//!
//! ```text
//! system credentials  ─┐
//! disk                 ├─▶ the first that has a key ─▶ berth.toml, join-token, token, machine.env
//! kernel command line  │                              (the agent and the firewall read them)
//! defaults of the image┘
//! ```
//!
//! - [`source`] reads each of them into a table.
//! - [`destination`] writes the files.
//!
//! The keys are the options of `berth agent`, and its two tokens themselves.

mod destination;
mod source;

use std::{io, path::PathBuf};

use clap::{Arg, Args, Command};
use toml::{Table, Value};

use self::source::Source;
use crate::system::labelled_disk::DiskError;

/// The keys of the secrets, which are not options.
const SECRETS: [&str; 2] = ["join_token", "token"];
/// The options that the unit of the image sets itself.
const FIXED: [&str; 5] = [
    "join_token_file",
    "json",
    "script_worker",
    "state_dir",
    "token_file",
];

/// Options of `berth machine-settings`.
#[derive(Debug, Args)]
pub struct MachineSettings {
    /// Directory that the files are written to, which exists
    pub directory: PathBuf,

    /// TOML file whose table `agent` has the settings that the machine does not
    #[arg(long, value_name = "FILE")]
    pub defaults: Option<PathBuf>,
}

/// Settings that cannot be used. Values are not named: they may be secrets.
#[derive(Debug, thiserror::Error)]
pub enum MachineSettingsError {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is larger than {limit} bytes")]
    TooLarge { path: PathBuf, limit: u64 },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{0} is not valid TOML: {1}")]
    NotToml(String, String),
    #[error("{0}: {1} is not an option of the agent")]
    UnknownKey(String, String),
    #[error("{0}: {1} is set by the image")]
    FixedKey(String, String),
    #[error("{0}: {1} must be a string, a number, a boolean or an array of these")]
    InvalidValue(String, String),
    #[error("listen must be ADDRESS:PORT with a port from 1 to 65535")]
    InvalidListen,
    #[error("cannot write {path}: {source}")]
    Unwritable { path: PathBuf, source: io::Error },
}

impl MachineSettings {
    /// Collects the settings, writes the files, and returns where the settings come from, a line
    /// for each source that has some.
    ///
    /// `agent` is the definition of the command `berth agent`.
    ///
    /// # Errors
    /// Fails if a source cannot be read, has a key that is unknown or an invalid value, or if a
    /// file cannot be written. Nothing is written then but for the last of these.
    pub fn collect(&self, agent: &Command) -> Result<String, MachineSettingsError> {
        let sources = source::all(self.defaults.as_deref(), agent)?;
        for source in &sources {
            check(source, agent)?;
        }
        let report: Vec<String> = sources.iter().map(Source::describe).collect();
        destination::write(merge(sources), &self.directory)?;
        Ok(report.join("\n"))
    }
}

/// Returns each key with the value of the first source that has it.
fn merge(sources: Vec<Source>) -> Table {
    let mut merged = Table::new();
    for source in sources {
        for (key, value) in source.settings {
            merged.entry(key).or_insert(value);
        }
    }
    merged
}

/// Checks the keys and the types of values of a source.
fn check(source: &Source, agent: &Command) -> Result<(), MachineSettingsError> {
    for (key, value) in &source.settings {
        if let Some(error) = error_of(key, value, agent) {
            return Err(error(source.name.clone(), key.clone()));
        }
    }
    Ok(())
}

/// Returns the error for a setting, if it has one, which is made from the names of source and key.
fn error_of(
    key: &str,
    value: &Value,
    agent: &Command,
) -> Option<fn(String, String) -> MachineSettingsError> {
    if FIXED.contains(&key) {
        return Some(MachineSettingsError::FixedKey);
    }
    let is_secret = SECRETS.contains(&key);
    if !is_secret && !agent.get_arguments().any(|option| is_named(option, key)) {
        return Some(MachineSettingsError::UnknownKey);
    }
    let is_valid = match value {
        Value::Array(values) => !is_secret && values.iter().all(is_single),
        value => is_single(value) && (!is_secret || value.is_str()),
    };
    (!is_valid).then_some(MachineSettingsError::InvalidValue as fn(_, _) -> _)
}

/// Returns whether the key is the name of the option.
fn is_named(option: &Arg, key: &str) -> bool {
    let long = option.get_long();
    long.is_some_and(|long| long.replace('-', "_") == key) && !option.is_hide_set()
}

fn is_single(value: &Value) -> bool {
    matches!(
        value,
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_)
    )
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn agent() -> Command {
        Command::new("agent").args([
            Arg::new("listen").long("listen"),
            Arg::new("state_dir").long("state-dir"),
            Arg::new("credentials_directory")
                .long("credentials-directory")
                .hide(true),
            Arg::new("chromium_flags")
                .long("chromium-flag")
                .action(ArgAction::Append),
        ])
    }

    fn source(name: &str, settings: &str) -> Source {
        Source {
            name: name.to_owned(),
            settings: settings.parse().unwrap(),
        }
    }

    #[test]
    fn first_source_that_has_a_key_wins() {
        let merged = merge(vec![
            source("credentials", "listen = \"a\""),
            source("disk", "listen = \"b\"\ntoken = \"c\""),
            source("kernel", "token = \"d\"\nchromium_flag = [\"e\"]"),
        ]);
        let expected = "listen = \"a\"\ntoken = \"c\"\nchromium_flag = [\"e\"]";
        assert_eq!(merged, expected.parse().unwrap());
    }

    #[test]
    fn unknown_fixed_and_invalid_settings_are_refused_without_their_values() {
        for (settings, expected) in [
            (
                "lisen = \"secret\"",
                "disk: lisen is not an option of the agent",
            ),
            (
                "credentials_directory = \"secret\"",
                "disk: credentials_directory is not an option of the agent",
            ),
            (
                "state_dir = \"secret\"",
                "disk: state_dir is set by the image",
            ),
            (
                "join_token_file = \"secret\"",
                "disk: join_token_file is set by the image",
            ),
            (
                "listen = {secret = 1}",
                "disk: listen must be a string, a number, a boolean or an array of these",
            ),
            (
                "token = [\"secret\"]",
                "disk: token must be a string, a number, a boolean or an array of these",
            ),
        ] {
            let error = check(&source("disk", settings), &agent()).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let valid = "listen = \"a\"\nchromium_flag = [\"b\"]\ntoken = \"c\"\njoin_token = \"d\"";
        assert!(check(&source("disk", valid), &agent()).is_ok());
    }
}
