//! The optional TOML file: each key becomes the default of the option of that name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Command;
use toml::{Table, Value};

pub const VARIABLE: &str = "BERTH_CONFIG";

/// Has a subcommand of the same options for each command that serves.
const CHECK: &str = "check";

/// Why the configuration file cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    #[error("cannot read {path}: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not TOML: {source}")]
    NotToml {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    #[error("{path}: there is no command `{table}` to configure")]
    UnknownTable { path: PathBuf, table: String },
    #[error("{path}: [{table}] has no setting `{key}`")]
    UnknownKey {
        path: PathBuf,
        table: String,
        key: String,
    },
    #[error("{path}: [{table}] {key} must be text, a number, true or false, or a list of these")]
    BadValue {
        path: PathBuf,
        table: String,
        key: String,
    },
}

/// The command with the file's values as defaults, where a file is named.
pub fn apply(command: Command, arguments: &[OsString]) -> Result<Command, ConfigFileError> {
    match path_in(arguments).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) {
        Some(path) => apply_table(command, &read(&path)?, &path),
        None => Ok(command),
    }
}

/// The file must be known before the options can be parsed, for it gives their defaults.
fn path_in(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        let text = argument.to_str().unwrap_or_default();
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    None
}

fn read(path: &Path) -> Result<Table, ConfigFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    text.parse().map_err(|source| ConfigFileError::NotToml {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

fn apply_table(
    mut command: Command,
    file: &Table,
    path: &Path,
) -> Result<Command, ConfigFileError> {
    for (table, settings) in file {
        let unknown = || ConfigFileError::UnknownTable {
            path: path.to_owned(),
            table: table.clone(),
        };
        let settings = settings.as_table().ok_or_else(unknown)?;
        let subcommand = command.find_subcommand(table).ok_or_else(unknown)?;
        let defaults = defaults(subcommand, table, settings, path)?;
        let checked = command
            .find_subcommand(CHECK)
            .is_some_and(|check| check.find_subcommand(table).is_some());
        if checked {
            command = command.mut_subcommand(CHECK, |check| {
                check.mut_subcommand(table, |subcommand| with_defaults(subcommand, &defaults))
            });
        }
        command = command.mut_subcommand(table, |subcommand| with_defaults(subcommand, &defaults));
    }
    Ok(command)
}

type Defaults = Vec<(String, Vec<String>)>;

fn with_defaults(subcommand: Command, defaults: &Defaults) -> Command {
    defaults
        .iter()
        .fold(subcommand, |subcommand, (id, values)| {
            let values = values.clone();
            subcommand.mut_arg(id, |option| option.required(false).default_values(values))
        })
}

fn defaults(
    subcommand: &Command,
    table: &str,
    settings: &Table,
    path: &Path,
) -> Result<Defaults, ConfigFileError> {
    let key_of = |key: &str| (path.to_owned(), table.to_owned(), key.to_owned());
    settings
        .iter()
        .map(|(key, value)| {
            let option = subcommand.get_arguments().find(|option| {
                option.get_id().as_str() == key
                    || option
                        .get_long()
                        .is_some_and(|long| OsStr::new(long) == OsStr::new(key))
            });
            let option = option.ok_or_else(|| {
                let (path, table, key) = key_of(key);
                ConfigFileError::UnknownKey { path, table, key }
            })?;
            let values = texts(value).ok_or_else(|| {
                let (path, table, key) = key_of(key);
                ConfigFileError::BadValue { path, table, key }
            })?;
            Ok((option.get_id().to_string(), values))
        })
        .collect()
}

fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        single => text(single).map(|text| vec![text]),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn command() -> Command {
        Command::new("berth").subcommand(
            Command::new("agent")
                .arg(Arg::new("state_dir").long("state-dir").required(true))
                .arg(Arg::new("listen").long("listen").default_value("here")),
        )
    }

    fn listen(file: &str, arguments: &[&str]) -> String {
        let table = file.parse().unwrap();
        let matches = apply_table(command(), &table, Path::new("berth.toml"))
            .unwrap()
            .try_get_matches_from(arguments)
            .unwrap();
        let (_, agent) = matches.subcommand().unwrap();
        agent.get_one::<String>("listen").unwrap().clone()
    }

    #[test]
    fn the_file_stands_between_options_and_defaults() {
        let file = "[agent]\nstate-dir = \"/tmp\"\nlisten = \"there\"";
        assert_eq!(listen(file, &["berth", "agent"]), "there");
        assert_eq!(
            listen(file, &["berth", "agent", "--listen", "elsewhere"]),
            "elsewhere"
        );
    }

    #[test]
    fn what_the_file_says_in_vain_is_told() {
        let refusal = |file: &str| {
            apply_table(command(), &file.parse().unwrap(), Path::new("berth.toml"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal("[agnet]"),
            "berth.toml: there is no command `agnet` to configure"
        );
        assert_eq!(
            refusal("[agent]\nlisen = 1"),
            "berth.toml: [agent] has no setting `lisen`"
        );
        assert!(refusal("[agent]\nlisten = {a = 1}").contains("must be text"));
    }
}
