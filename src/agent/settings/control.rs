//! The options of an agent that registers itself at control.

use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use super::SettingsErrors;
use crate::{api::fleet::HostAddress, loopback::is_loopback, token_setting};

/// The variable with the join token.
const JOIN_TOKEN: &str = "BERTH_AGENT_JOIN_TOKEN";

/// The name of the credential of systemd with the join token.
const CREDENTIAL: &str = "berth-join-token";

/// The options of an agent that registers itself at control.
#[derive(Clone, Debug, clap::Args)]
pub struct ControlSettings {
    /// Base URL of the control server at which the agent registers itself; it serves with TLS then,
    /// and only this control server
    #[arg(long, env = "BERTH_AGENT_CONTROL_URL", value_name = "URL")]
    pub control_url: Option<String>,

    /// File with a join token, readable by its owner only; alternatives: the credential
    /// berth-join-token of the systemd unit, the variable BERTH_AGENT_JOIN_TOKEN
    #[arg(long, env = "BERTH_AGENT_JOIN_TOKEN_FILE", value_name = "FILE")]
    pub join_token_file: Option<PathBuf>,

    /// Set by systemd if the unit has credentials
    #[arg(long, env = "CREDENTIALS_DIRECTORY", hide = true)]
    credentials_directory: Option<PathBuf>,

    /// IP address and port at which control reaches the agent [default: that of --listen, or the
    /// machine's own address on the way to control]
    #[arg(long, env = "BERTH_AGENT_ADVERTISE", value_name = "ADDR:PORT")]
    pub advertise: Option<String>,

    /// Permit an http URL of another machine as --control-url
    #[arg(long, env = "BERTH_AGENT_ALLOW_PLAIN_HTTP")]
    pub allow_plain_http: bool,

    /// Register only after the machine was resumed from a snapshot, with the join token that its
    /// engine passes then
    #[arg(long, env = "BERTH_AGENT_TEMPLATE")]
    pub template: bool,
}

/// The checked options of an agent that registers itself.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    pub url: Url,
    pub join_token: Option<SecretString>,
    /// `None` for the address that the agent listens on, or the machine's own if that is any.
    pub advertised: Option<HostAddress>,
    /// Whether the agent registers only after its machine was resumed from a snapshot.
    pub is_template: bool,
}

impl ControlSettings {
    /// Checks the options. Returns `None` if the agent does not register itself.
    pub(super) fn resolve(&self, errors: &mut SettingsErrors) -> Option<ControlConfig> {
        let Some(url) = &self.control_url else {
            self.reject_unused(errors);
            return None;
        };
        let url = errors.collect("control-url", self.parse_url(url));
        let join_token = errors.collect("join-token-file", self.read_join_token());
        let advertised = self.advertise.as_deref().map(str::parse).transpose();
        let advertised = errors.collect("advertise", advertised).flatten();
        let join_token = join_token.flatten();
        if self.template {
            self.reject_of_template(join_token.is_some(), errors);
        }
        Some(ControlConfig {
            url: url?,
            join_token,
            advertised,
            is_template: self.template,
        })
    }

    /// Reads the join token from its file, or from the credential of systemd, or from the variable.
    #[expect(
        clippy::disallowed_methods,
        reason = "an option would show the token in the list of processes"
    )]
    fn read_join_token(&self) -> Result<Option<SecretString>, String> {
        token_setting::read_with_credential(
            self.join_token_file.as_deref(),
            (self.credentials_directory.as_deref(), CREDENTIAL),
            (JOIN_TOKEN, std::env::var(JOIN_TOKEN).ok()),
        )
    }

    /// Rejects what all machines that are resumed from a snapshot would have in common.
    fn reject_of_template(&self, has_join_token: bool, errors: &mut SettingsErrors) {
        let common = [
            ("join-token-file", has_join_token),
            ("advertise", self.advertise.is_some()),
        ];
        let message = "cannot be combined with --template: a machine gets it when it is resumed";
        reject(common, message, errors);
    }

    fn reject_unused(&self, errors: &mut SettingsErrors) {
        let unused = [
            ("join-token-file", self.join_token_file.is_some()),
            ("advertise", self.advertise.is_some()),
            ("template", self.template),
        ];
        reject(unused, "has no effect without --control-url", errors);
    }

    fn parse_url(&self, text: &str) -> Result<Url, String> {
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
        if is_plain && !self.allow_plain_http && !is_loopback(&url) {
            return Err(
                "must be https: others on the network could read the join token; \
                 --allow-plain-http permits http"
                    .to_owned(),
            );
        }
        Ok(url)
    }
}

/// Adds the message for each of the options that is set.
fn reject<const N: usize>(
    options: [(&'static str, bool); N],
    message: &str,
    errors: &mut SettingsErrors,
) {
    for (option, is_set) in options {
        if is_set {
            errors.add(option, message.to_owned());
        }
    }
}
