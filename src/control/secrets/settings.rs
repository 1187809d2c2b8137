//! The settings of the operator's keys.

use std::path::PathBuf;

use super::{
    key_ring::KeyRing,
    ring_source::{self, RingSourceError},
};
use crate::token_setting;

/// The variable with the keys.
const VARIABLE: &str = "BERTH_SECRETS_KEY";
/// The name of the credential of systemd with the keys.
const CREDENTIAL: &str = "berth-secrets-key";

/// The options that select the keys of stored secrets.
#[derive(Debug, Clone, clap::Args)]
pub struct SecretsSettings {
    /// File with the keys that encrypt stored secrets, readable by its owner only: 64 hexadecimal
    /// digits in each line, the current key first; or the variable BERTH_SECRETS_KEY, with commas
    /// [default: a key in the state directory, created at first use]
    #[arg(long, env = "BERTH_SECRETS_KEY_FILE", value_name = "FILE")]
    pub secrets_key_file: Option<PathBuf>,

    /// Set by systemd if the unit has credentials
    #[arg(long, env = "CREDENTIALS_DIRECTORY", hide = true)]
    credentials_directory: Option<PathBuf>,
}

impl SecretsSettings {
    /// Reads the configured keys, if there are any. The file takes precedence over the credential
    /// of systemd, and that over the variable.
    ///
    /// # Errors
    /// If they cannot be read, or are no keys.
    #[expect(
        clippy::disallowed_methods,
        reason = "an option would show the keys in the list of processes"
    )]
    pub fn check(&self) -> Result<Option<KeyRing>, RingSourceError> {
        let read = token_setting::read_secret_with_credential(
            self.secrets_key_file.as_deref(),
            (self.credentials_directory.as_deref(), CREDENTIAL),
            (VARIABLE, std::env::var(VARIABLE).ok()),
        );
        let Some((text, origin)) = read.map_err(RingSourceError::Read)? else {
            return Ok(None);
        };
        ring_source::parse(&text, origin).map(Some)
    }
}
