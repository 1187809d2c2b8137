//! Options of `berth profile import`.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use crate::{api::name::Name, loopback::is_loopback, token_setting};

/// The variable with the API key.
const API_KEY: &str = "BERTH_API_KEY";
/// The variable with the password of the key ring.
const KEY_RING_PASSWORD: &str = "BERTH_KEYRING_PASSWORD";

/// Options of `berth profile import`.
#[derive(Debug, Clone, clap::Args)]
pub struct ImportOptions {
    /// User-data directory of Chrome or Chromium, or one of the profile directories in it
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,

    /// Name of the profile, created if it does not exist
    #[arg(long, value_parser = profile_name, value_name = "NAME", required_unless_present = "output")]
    pub name: Option<String>,

    /// Base URL of control
    #[arg(
        long,
        env = "BERTH_URL",
        value_name = "URL",
        required_unless_present = "output"
    )]
    pub url: Option<String>,

    /// File with the API key, readable by its owner only; the key itself can be given in
    /// `BERTH_API_KEY`
    #[arg(long, env = "BERTH_API_KEY_FILE", value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,

    /// Id of the project, for a key of the organization [default: the default project]
    #[arg(long, value_name = "ID")]
    pub project: Option<String>,

    /// Permit an http URL of another machine
    #[arg(long)]
    pub allow_plain_http: bool,

    /// Profile directory within the user-data directory
    #[arg(long, default_value = "Default", value_name = "NAME")]
    pub profile_directory: String,

    /// Import the profile of a browser that is running: what it is writing meanwhile may be missing
    #[arg(long)]
    pub live: bool,

    /// File with the password of the browser in the key ring, readable by its owner only; the
    /// password itself can be given in `BERTH_KEYRING_PASSWORD` [default: looked up with
    /// `secret-tool`]
    #[arg(long, env = "BERTH_KEYRING_PASSWORD_FILE", value_name = "FILE")]
    pub keyring_password_file: Option<PathBuf>,

    /// Write the archive to a new file instead of uploading it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "url"])]
    pub output: Option<PathBuf>,
}

/// The destination of an archive.
pub(super) enum Destination {
    File(PathBuf),
    Control {
        name: String,
        url: Url,
        api_key: SecretString,
        project: Option<String>,
    },
}

/// Checked options.
pub struct ImportConfig {
    pub(super) directory: PathBuf,
    pub(super) profile_directory: String,
    pub(super) live: bool,
    pub(super) key_ring_password: Option<SecretString>,
    pub(super) destination: Destination,
}

impl ImportOptions {
    /// Checks the options, and reads the secrets that they name.
    ///
    /// # Errors
    /// Returns a message that names the option.
    #[expect(
        clippy::disallowed_methods,
        reason = "options would show the secrets in the list of processes"
    )]
    pub fn check(self) -> Result<ImportConfig, String> {
        let variable = |name| {
            (
                name,
                std::env::var(name).ok().filter(|value| !value.is_empty()),
            )
        };
        self.check_with(variable(API_KEY), variable(KEY_RING_PASSWORD))
    }

    fn check_with(
        self,
        api_key: (&str, Option<String>),
        key_ring_password: (&str, Option<String>),
    ) -> Result<ImportConfig, String> {
        if !is_plain_name(&self.profile_directory) {
            return Err("--profile-directory must be the name of a directory".to_owned());
        }
        let password_file = self.keyring_password_file.as_deref();
        let password = token_setting::read_secret(password_file, key_ring_password)
            .map_err(|error| format!("--keyring-password-file: {error}"))?;
        let destination = match (self.output, self.name, self.url) {
            (Some(path), _, _) => Destination::File(path),
            (None, Some(name), Some(url)) => Destination::Control {
                name,
                url: parse_url(&url, self.allow_plain_http)
                    .map_err(|error| format!("--url {error}"))?,
                api_key: token_setting::read(self.api_key_file.as_deref(), api_key)
                    .map_err(|error| format!("--api-key-file: {error}"))?
                    .ok_or_else(|| format!("needs --api-key-file or {API_KEY}"))?,
                project: self.project,
            },
            (None, _, _) => return Err("needs --name and --url, or --output".to_owned()),
        };
        Ok(ImportConfig {
            directory: self.directory,
            profile_directory: self.profile_directory,
            live: self.live,
            key_ring_password: password.map(|(password, _)| password),
            destination,
        })
    }
}

fn profile_name(text: &str) -> Result<String, String> {
    Name::parse(text.to_owned()).map(Into::into)
}

/// Returns whether a text is a name within a directory.
fn is_plain_name(text: &str) -> bool {
    Path::new(text).file_name().is_some_and(|name| name == text)
}

fn parse_url(text: &str, allow_plain_http: bool) -> Result<Url, String> {
    let url: Url = text
        .parse()
        .map_err(|error| format!("is not a URL: {error}"))?;
    let is_plain = url.scheme() == "http";
    if !is_plain && url.scheme() != "https" || url.host().is_none() {
        return Err("must be an https or http URL".to_owned());
    }
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        return Err("must have no user, password, query or fragment".to_owned());
    }
    if is_plain && !allow_plain_http && !is_loopback(&url) {
        let message = "must be https: others on the network could read the API key and the cookies; --allow-plain-http permits http";
        return Err(message.to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        options: ImportOptions,
    }

    fn check(arguments: &[&str], key: Option<&str>) -> Result<ImportConfig, String> {
        let all = ["import", "/profile"].iter().chain(arguments);
        let cli = TestCli::try_parse_from(all).map_err(|error| error.to_string())?;
        let key = key.map(str::to_owned);
        cli.options
            .check_with((API_KEY, key), (KEY_RING_PASSWORD, None))
    }

    #[test]
    fn invalid_option_is_named() {
        let key = Some("the-api-key-of-a-test");
        let to = |url: &'static str| vec!["--name", "work", "--url", url];
        let output = |more: &[&'static str]| [&["--output", "x"], more].concat();
        for (arguments, key, message) in [
            (vec![], key, "--name"),
            (vec!["--name", "work"], key, "--url"),
            (
                vec!["--name", "a/b", "--url", "http://localhost"],
                key,
                "must have 1 to 255",
            ),
            (output(&["--name", "work"]), key, "cannot be used with"),
            (to("no-url"), key, "--url is not a URL"),
            (to("ftp://localhost"), key, "must be an https"),
            (to("https://a@b.example"), key, "must have no user"),
            (to("http://b.example"), key, "must be https"),
            (to("https://b.example"), None, "BERTH_API_KEY"),
            (to("https://b.example"), Some("short"), "16 to 1024"),
            (
                output(&["--profile-directory", "../x"]),
                None,
                "--profile-directory must be",
            ),
            (
                output(&["--keyring-password-file", "/none"]),
                None,
                "-file: /none",
            ),
        ] {
            let error = check(&arguments, key).err().unwrap();
            assert!(error.contains(message), "{arguments:?}: {error}");
        }
        assert!(check(&output(&[]), None).is_ok());
        let plain = [to("http://b.example"), vec!["--allow-plain-http"]].concat();
        assert!(check(&plain, key).is_ok());
        assert!(check(&to("http://127.0.0.1:8080/"), key).is_ok());
    }
}
