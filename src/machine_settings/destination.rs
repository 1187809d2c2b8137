//! The files with the settings: the configuration of the agent, its tokens, and variables for the
//! firewall.

use std::{io, net::SocketAddr, path::Path};

use toml::{Table, Value};
use url::{Host, Url};

use super::{MachineSettingsError, SECRETS};
use crate::{
    state_dir::{replace_file, replace_private_file},
    system::files::remove::remove_file_if_exists,
};

/// The configuration of the agent.
const CONFIGURATION: &str = "berth.toml";
/// The variables for the scripts of the firewall.
const VARIABLES: &str = "machine.env";
/// The port of the agent if nothing else is set.
const DEFAULT_PORT: u16 = 10001;

/// Writes the files, and removes those of secrets that there are not.
///
/// # Errors
/// Fails if the agent's address is invalid, before anything is written, or if a file cannot be
/// written.
pub(super) fn write(mut settings: Table, directory: &Path) -> Result<(), MachineSettingsError> {
    let variables = variables(&settings)?;
    for secret in SECRETS {
        let path = directory.join(secret.replace('_', "-"));
        let written = match settings.remove(secret) {
            Some(value) => {
                let file = Value::String(path.display().to_string());
                settings.insert(format!("{secret}_file"), file);
                let content = value.as_str().unwrap_or_default();
                replace_private_file(&path, content.as_bytes())
            }
            None => remove_file_if_exists(&path),
        };
        written.map_err(|source| unwritable(&path, source))?;
    }
    let configuration = Table::from_iter([("agent".to_owned(), Value::Table(settings))]);
    let path = directory.join(CONFIGURATION);
    replace_private_file(&path, configuration.to_string().as_bytes())
        .map_err(|source| unwritable(&path, source))?;
    let path = directory.join(VARIABLES);
    replace_file(&path, variables.as_bytes()).map_err(|source| unwritable(&path, source))
}

/// Returns the port of the agent and the address of control, as variables for a shell.
fn variables(settings: &Table) -> Result<String, MachineSettingsError> {
    let port = match settings.get("listen").and_then(Value::as_str) {
        Some(listen) => {
            let address: Option<SocketAddr> = listen.parse().ok();
            // With port 0 the firewall could not protect the one that the agent takes.
            let port = address
                .map(|address| address.port())
                .filter(|port| *port != 0);
            port.ok_or(MachineSettingsError::InvalidListen)?
        }
        None => DEFAULT_PORT,
    };
    let mut variables = format!("AGENT_PORT={port}\n");
    // The agent itself reports a URL that is invalid.
    let url = settings.get("control_url").and_then(Value::as_str);
    if let Some(url) = url.and_then(|url| Url::parse(url).ok())
        && let (Some(host), Some(port)) = (url.host(), url.port_or_known_default())
    {
        let host = match host {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        if is_plain(&host) {
            variables += &format!("CONTROL_HOST={host}\nCONTROL_PORT={port}\n");
        }
    }
    Ok(variables)
}

/// Returns whether a shell reads the word as it is.
fn is_plain(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    !word.is_empty() && word.bytes().all(is_plain)
}

fn unwritable(path: &Path, source: io::Error) -> MachineSettingsError {
    MachineSettingsError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn secrets_are_private_files_that_the_configuration_names() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("token"), "of an earlier start").unwrap();
        let settings = "listen = \"0.0.0.0:10002\"\njoin_token = \"planted\"\n\
            chromium_flag = [\"--a\"]\ncontrol_url = \"https://control.example\"";
        write(settings.parse().unwrap(), directory.path()).unwrap();
        let configuration = fs::read_to_string(path(CONFIGURATION)).unwrap();
        assert!(!configuration.contains("planted"), "{configuration}");
        let configuration: Table = configuration.parse().unwrap();
        let agent = configuration["agent"].as_table().unwrap();
        let token = path("join-token");
        assert_eq!(agent["join_token_file"].as_str(), token.to_str());
        assert_eq!(agent["chromium_flag"][0].as_str(), Some("--a"));
        assert_eq!(fs::read_to_string(&token).unwrap(), "planted");
        let mode = fs::metadata(&token).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!path("token").exists());
        assert_eq!(
            fs::read_to_string(path(VARIABLES)).unwrap(),
            "AGENT_PORT=10002\nCONTROL_HOST=control.example\nCONTROL_PORT=443\n"
        );
    }

    #[test]
    fn variables_are_safe_for_a_shell() {
        let of = |text: &str| variables(&text.parse().unwrap());
        assert_eq!(of("").unwrap(), "AGENT_PORT=10001\n");
        assert_eq!(
            of("control_url = \"http://[fd00::1]:8080/\"").unwrap(),
            "AGENT_PORT=10001\nCONTROL_HOST=fd00::1\nCONTROL_PORT=8080\n"
        );
        for url in ["https://a$(b)/", "x://a;b/", "not a url"] {
            let variables = of(&format!("control_url = \"{url}\"")).unwrap();
            assert_eq!(variables, "AGENT_PORT=10001\n", "{url}");
        }
        for invalid in ["0.0.0.0", "0.0.0.0:0", "localhost:1"] {
            assert!(of(&format!("listen = \"{invalid}\"")).is_err(), "{invalid}");
        }
    }

    #[test]
    fn nothing_is_written_for_an_invalid_address() {
        let directory = tempfile::tempdir().unwrap();
        let settings = "listen = \"x\"\njoin_token = \"planted\"";
        assert!(write(settings.parse().unwrap(), directory.path()).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
