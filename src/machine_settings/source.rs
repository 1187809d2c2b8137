//! The places where the settings of a machine can be.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{ArgAction, Command};
use toml::{Table, Value};

use super::{MachineSettingsError, SECRETS, is_named};
use crate::system::labelled_disk::LabelledDisk;

/// The directory with the credentials that systemd received from the virtual machine monitor.
const CREDENTIALS: &str = "/run/credentials/@system";
/// The command line that the kernel was started with.
const KERNEL_COMMAND_LINE: &str = "/proc/cmdline";
/// The labels that a disk with settings can have. The first is that of cloud-init's disks.
const DISK_LABELS: [&str; 4] = ["cidata", "CIDATA", "berth", "BERTH"];
/// The files on it, of which the first that exists is read. The first is that of cloud-init.
const DISK_FILES: [&str; 2] = ["user-data", "berth.toml"];
/// The prefix of the names of credentials and of parameters of the kernel.
const PREFIX: &str = "berth.";
/// The largest size of a credential, a file or the command line, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// A place, and the settings that it has.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) settings: Table,
}

impl Source {
    /// Returns its name and its keys, without the values.
    pub(super) fn describe(&self) -> String {
        let keys: Vec<&str> = self.settings.keys().map(String::as_str).collect();
        format!("{}: {}", self.name, keys.join(", "))
    }
}

/// Reads all places that have settings, in the order of their precedence.
///
/// # Errors
/// Fails if one of them cannot be read.
pub(super) fn all(
    defaults: Option<&Path>,
    agent: &Command,
) -> Result<Vec<Source>, MachineSettingsError> {
    let defaults = match defaults {
        Some(path) => Some(of_defaults(path)?),
        None => None,
    };
    let sources = [
        Some(of_credentials(Path::new(CREDENTIALS), agent)?),
        of_disk()?,
        Some(of_kernel(
            &read_bounded(Path::new(KERNEL_COMMAND_LINE))?,
            agent,
        )),
        defaults,
    ];
    let with_settings = |source: &Source| !source.settings.is_empty();
    Ok(sources
        .into_iter()
        .flatten()
        .filter(with_settings)
        .collect())
}

/// Reads a text of bounded size.
fn read_bounded(path: &Path) -> Result<String, MachineSettingsError> {
    read_bounded_named(path, path)
}

/// Reads a text of bounded size. Errors give it another name than its path.
fn read_bounded_named(path: &Path, name: &Path) -> Result<String, MachineSettingsError> {
    let read = |text: &mut String| File::open(path)?.take(MAX_BYTES + 1).read_to_string(text);
    let mut text = String::new();
    match read(&mut text) {
        Ok(length) if length as u64 > MAX_BYTES => Err(MachineSettingsError::TooLarge {
            path: name.to_owned(),
            limit: MAX_BYTES,
        }),
        Ok(_) => Ok(text),
        Err(source) => Err(unreadable(name, source)),
    }
}

fn unreadable(path: &Path, source: io::Error) -> MachineSettingsError {
    MachineSettingsError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

/// Reads the credentials `berth.KEY`. An option that can be repeated has a line for each value.
fn of_credentials(directory: &Path, agent: &Command) -> Result<Source, MachineSettingsError> {
    let mut settings = Table::new();
    for path in entries(directory).map_err(|error| unreadable(directory, error))? {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(key) = name.and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let text = read_bounded(&path)?;
        let key = normalized(key);
        let values = match is_repeatable(agent, &key) {
            true => text.lines().map(str::trim).collect(),
            false => vec![text.trim()],
        };
        let values = values.into_iter().filter(|value| !value.is_empty());
        for value in values {
            add(&mut settings, agent, &key, value);
        }
    }
    Ok(Source {
        name: "credentials of the system".to_owned(),
        settings,
    })
}

/// Returns the files of a directory, none if it does not exist.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn of_disk() -> Result<Option<Source>, MachineSettingsError> {
    let Some(disk) = LabelledDisk::mount(&DISK_LABELS)? else {
        return Ok(None);
    };
    for file in DISK_FILES {
        let name = Path::new(&disk.label).join(file);
        match read_bounded_named(&disk.root().join(file), &name) {
            Err(MachineSettingsError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound => {}
            text => {
                let name = format!("{file} on the disk {}", disk.label);
                return of_text(name, &text?).map(Some);
            }
        }
    }
    Ok(None)
}

fn of_text(name: String, text: &str) -> Result<Source, MachineSettingsError> {
    let settings = parse(&name, text)?;
    Ok(Source { name, settings })
}

fn of_defaults(path: &Path) -> Result<Source, MachineSettingsError> {
    let name = path.display().to_string();
    let mut file = parse(&name, &read_bounded(path)?)?;
    let settings = match file.remove("agent") {
        Some(Value::Table(settings)) => settings,
        _ => Table::new(),
    };
    Ok(Source { name, settings })
}

/// Parses TOML. The error says where it is wrong, without the text, which may have secrets.
fn parse(name: &str, text: &str) -> Result<Table, MachineSettingsError> {
    let parsed: Result<Table, toml::de::Error> = text.parse();
    let settings = parsed.map_err(|error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = before.matches('\n').count() + 1;
        MachineSettingsError::NotToml(name.to_owned(), format!("line {line}: {}", error.message()))
    })?;
    let normalized = |(key, value): (String, Value)| (normalized(&key), value);
    Ok(settings.into_iter().map(normalized).collect())
}

/// Reads the parameters `berth.KEY=VALUE` of the kernel. One without a value is `true`.
fn of_kernel(command_line: &str, agent: &Command) -> Source {
    let mut settings = Table::new();
    for parameter in parameters(command_line) {
        let Some(setting) = parameter.strip_prefix(PREFIX) else {
            continue;
        };
        let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
        add(&mut settings, agent, &normalized(key), value);
    }
    Source {
        name: "kernel command line".to_owned(),
        settings,
    }
}

/// Splits the command line at spaces that are not between double quotes, and removes the quotes.
fn parameters(command_line: &str) -> Vec<String> {
    let mut parameters = Vec::new();
    let mut parameter = String::new();
    let mut is_quoted = false;
    for character in command_line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            space if space.is_whitespace() && !is_quoted => {
                parameters.push(std::mem::take(&mut parameter));
            }
            other => parameter.push(other),
        }
    }
    parameters.push(parameter);
    parameters
}

/// Adds a value. That of an option that can be repeated is appended, any other one replaced.
fn add(settings: &mut Table, agent: &Command, key: &str, value: &str) {
    let value = Value::String(value.to_owned());
    match settings.get_mut(key) {
        Some(Value::Array(values)) => values.push(value),
        _ if is_repeatable(agent, key) => {
            settings.insert(key.to_owned(), Value::Array(vec![value]));
        }
        _ => {
            settings.insert(key.to_owned(), value);
        }
    }
}

fn is_repeatable(agent: &Command, key: &str) -> bool {
    let mut options = agent.get_arguments();
    !SECRETS.contains(&key)
        && options
            .any(|option| is_named(option, key) && matches!(option.get_action(), ArgAction::Append))
}

/// Returns a key as in the configuration file, where both separators are permitted.
fn normalized(key: &str) -> String {
    key.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn agent() -> Command {
        let flag = Arg::new("chromium_flags").long("chromium-flag");
        Command::new("agent").args([
            Arg::new("listen").long("listen"),
            flag.action(ArgAction::Append),
        ])
    }

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn kernel_parameters_have_keys_and_values() {
        let command_line = "root=/dev/vda berth.listen=0.0.0.0:1 berth.chromium-flag=--a=b \
            berth.chromium_flag=\"--c=d e\" berth.spare xberth.listen=no berth.listen=0.0.0.0:2\n";
        let expected = "listen = \"0.0.0.0:2\"\nspare = \"true\"\n\
            chromium_flag = [\"--a=b\", \"--c=d e\"]";
        assert_eq!(of_kernel(command_line, &agent()).settings, table(expected));
        assert!(of_kernel("", &agent()).settings.is_empty());
    }

    #[test]
    fn credentials_are_files_with_the_name_of_the_key() {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("berth.listen", " 0.0.0.0:1\n"),
            ("berth.chromium-flag", "--a\n\n--b\n"),
            ("berth.join_token", "a b\n"),
            ("vmm.notify", "other"),
        ] {
            fs::write(directory.path().join(name), content).unwrap();
        }
        let source = of_credentials(directory.path(), &agent()).unwrap();
        let expected = "listen = \"0.0.0.0:1\"\njoin_token = \"a b\"\n\
            chromium_flag = [\"--a\", \"--b\"]";
        assert_eq!(source.settings, table(expected));
        assert_eq!(
            source.describe(),
            "credentials of the system: chromium_flag, join_token, listen"
        );
        let missing = of_credentials(Path::new("/nonexistent"), &agent()).unwrap();
        assert!(missing.settings.is_empty());
    }

    #[test]
    fn sizes_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("berth.listen");
        let limit = usize::try_from(MAX_BYTES).unwrap();
        fs::write(&path, "x".repeat(limit)).unwrap();
        assert!(of_credentials(directory.path(), &agent()).is_ok());
        fs::write(&path, "x".repeat(limit + 1)).unwrap();
        let error = of_credentials(directory.path(), &agent()).err().unwrap();
        assert!(
            error.to_string().contains("larger than 65536 bytes"),
            "{error}"
        );
    }

    #[test]
    fn errors_of_the_disk_name_the_line_and_no_content() {
        let text = "listen = \"0.0.0.0:1\"\njoin_token = planted\n";
        let error = of_text("user-data".to_owned(), text).err().unwrap();
        let error = error.to_string();
        assert!(
            error.starts_with("user-data is not valid TOML: line 2"),
            "{error}"
        );
        assert!(!error.contains("planted"), "{error}");
        let error = of_text("user-data".to_owned(), "a = 1\n= 2").err().unwrap();
        assert!(error.to_string().contains("line 2"), "{error}");
        let source = of_text("user-data".to_owned(), "chromium-flag = [\"--a\"]").unwrap();
        assert_eq!(source.settings, table("chromium_flag = [\"--a\"]"));
    }

    #[test]
    fn defaults_are_the_table_of_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("berth.toml");
        fs::write(&path, "[agent]\nlisten = \"a\"\n[control]\nlisten = \"b\"").unwrap();
        assert_eq!(
            of_defaults(&path).unwrap().settings,
            table("listen = \"a\"")
        );
    }
}
