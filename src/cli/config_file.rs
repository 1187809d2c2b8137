//! The optional configuration file (TOML): each key is the default of the option with that name.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Command;
use toml::{Table, Value};

/// The environment variable that names the file.
pub(super) const VARIABLE: &str = "BERTH_CONFIG";

/// The command that has, for each server, a subcommand with the options of that server.
const CHECK: &str = "check";
/// The table of control, which also applies to the commands below.
const CONTROL: &str = "control";
/// The commands that use control's state directory and database. They know some of its options.
const OF_CONTROL: [&str; 2] = ["key", "database"];

/// A configuration file that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    #[error("cannot read {path}: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not valid TOML: {source}")]
    NotToml {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    #[error("{path}: unknown table [{table}]: no command has that name")]
    UnknownTable { path: PathBuf, table: String },
    #[error("{path}: unknown key `{key}` in [{table}]")]
    UnknownKey {
        path: PathBuf,
        table: String,
        key: String,
    },
    #[error(
        "{path}: `{key}` in [{table}] must be a string, a number, a boolean or an array of these"
    )]
    BadValue {
        path: PathBuf,
        table: String,
        key: String,
    },
}

/// Returns the command with the file's values as defaults, if a file is named.
#[expect(clippy::disallowed_methods, reason = "the CLI reads the settings")]
pub(super) fn apply(command: Command, arguments: &[OsString]) -> Result<Command, ConfigFileError> {
    match path_from(arguments).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) {
        Some(path) => apply_table(command, &read(&path)?, &path),
        None => Ok(command),
    }
}

/// Finds `--config` in the arguments. The file provides defaults, so it has to be known before clap
/// parses the arguments.
fn path_from(arguments: &[OsString]) -> Option<PathBuf> {
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
        let is_checkable = command
            .find_subcommand(CHECK)
            .is_some_and(|check| check.find_subcommand(table).is_some());
        if is_checkable {
            command = command.mut_subcommand(CHECK, |check| {
                check.mut_subcommand(table, |subcommand| with_defaults(subcommand, &defaults))
            });
        }
        command = command.mut_subcommand(table, |subcommand| with_defaults(subcommand, &defaults));
        for group in OF_CONTROL {
            if table == CONTROL && command.find_subcommand(group).is_some() {
                command = command.mut_subcommand(group, |group| with_known(group, &defaults));
            }
        }
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

/// Adds to each subcommand the defaults of the options that it has.
fn with_known(group: Command, defaults: &Defaults) -> Command {
    group.mut_subcommands(|subcommand| {
        let is_known = |id: &str| {
            subcommand
                .get_arguments()
                .any(|option| option.get_id() == id)
        };
        let known = defaults.iter().filter(|(id, _)| is_known(id));
        let known: Defaults = known.cloned().collect();
        with_defaults(subcommand, &known)
    })
}

fn defaults(
    subcommand: &Command,
    table: &str,
    settings: &Table,
    path: &Path,
) -> Result<Defaults, ConfigFileError> {
    let location = |key: &str| (path.to_owned(), table.to_owned(), key.to_owned());
    settings
        .iter()
        .map(|(key, value)| {
            let option = subcommand.get_arguments().find(|option| {
                let is_long = |long: &str| long == key || long.replace('-', "_") == *key;
                option.get_id().as_str() == key || option.get_long().is_some_and(is_long)
            });
            let option = option.ok_or_else(|| {
                let (path, table, key) = location(key);
                ConfigFileError::UnknownKey { path, table, key }
            })?;
            let values = to_texts(value).ok_or_else(|| {
                let (path, table, key) = location(key);
                ConfigFileError::BadValue { path, table, key }
            })?;
            Ok((option.get_id().to_string(), values))
        })
        .collect()
}

fn to_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(values) => values.iter().map(to_text).collect(),
        single => to_text(single).map(|text| vec![text]),
    }
}

fn to_text(value: &Value) -> Option<String> {
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
                .arg(Arg::new("listen").long("listen").default_value("default")),
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
    fn file_overrides_defaults_and_options_override_the_file() {
        let file = "[agent]\nstate-dir = \"/tmp\"\nlisten = \"file\"";
        assert_eq!(listen(file, &["berth", "agent"]), "file");
        assert_eq!(
            listen(file, &["berth", "agent", "--listen", "option"]),
            "option"
        );
    }

    #[test]
    fn key_is_the_name_of_the_option_with_either_separator() {
        let flag = Arg::new("all_flags").long("one-flag");
        for key in ["one-flag", "one_flag", "all_flags"] {
            let command = Command::new("berth").subcommand(Command::new("agent").arg(flag.clone()));
            let file = format!("[agent]\n{key} = \"x\"").parse().unwrap();
            let command = apply_table(command, &file, Path::new("berth.toml")).unwrap();
            let matches = command.try_get_matches_from(["berth", "agent"]).unwrap();
            let (_, agent) = matches.subcommand().unwrap();
            assert_eq!(agent.get_one::<String>("all_flags").unwrap(), "x", "{key}");
        }
    }

    #[test]
    fn table_of_control_applies_to_the_commands_of_its_database() {
        let option = |id: &'static str| Arg::new(id).long(id);
        let create = Command::new("create")
            .arg(option("state"))
            .arg(option("name"));
        let command = Command::new("berth")
            .subcommand(Command::new("control").args([option("state"), option("listen")]))
            .subcommand(Command::new("key").subcommand(create));
        let file = "[control]\nstate = \"/tmp\"\nlisten = \"x\""
            .parse()
            .unwrap();
        let command = apply_table(command, &file, Path::new("berth.toml")).unwrap();
        let matches = command.try_get_matches_from(["berth", "key", "create"]);
        let matches = matches.unwrap();
        let create = matches.subcommand().unwrap().1.subcommand().unwrap().1;
        assert_eq!(create.get_one::<String>("state").unwrap(), "/tmp");
        assert_eq!(create.get_one::<String>("name"), None);
    }

    #[test]
    fn unknown_tables_keys_and_values_are_rejected() {
        let error = |file: &str| {
            apply_table(command(), &file.parse().unwrap(), Path::new("berth.toml"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("[agnet]"),
            "berth.toml: unknown table [agnet]: no command has that name"
        );
        assert_eq!(
            error("[agent]\nlisen = 1"),
            "berth.toml: unknown key `lisen` in [agent]"
        );
        assert!(error("[agent]\nlisten = {a = 1}").contains("must be a string"));
    }
}
