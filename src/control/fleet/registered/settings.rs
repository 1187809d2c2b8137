//! The settings of the hosts that register themselves.

use std::{path::PathBuf, time::Duration};

use secrecy::{ExposeSecret, SecretString};

use super::launch::{LaunchConfig, LaunchSettings};
use crate::{
    control::{
        settings::SettingsError,
        state_dir::{StateDir, StateDirError},
    },
    system::identity::{Authority, HostIdentityError},
    token_setting,
};

/// Holds the private key and the certificate of the fleet's authority, unless a setting names
/// another file.
const AUTHORITY_FILE: &str = "fleet-ca.pem";

/// The options for hosts that register themselves.
#[derive(Debug, Clone, clap::Args)]
pub struct RegisteredFleetSettings {
    /// PEM file with the private key and the certificate of the fleet's certificate authority,
    /// readable by its owner only [default: created in the state directory]
    #[arg(long, env = "BERTH_FLEET_CA_FILE", value_name = "FILE")]
    pub fleet_ca_file: Option<PathBuf>,

    /// Seconds between two heartbeats of a registered host, which is lost after three without one
    /// (1–300)
    #[arg(long, env = "BERTH_HEARTBEAT_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300), value_name = "SECONDS")]
    pub heartbeat_seconds: u64,

    #[command(flatten)]
    pub launch: LaunchSettings,
}

/// The checked settings of the hosts that register themselves.
#[derive(Debug, Clone)]
pub struct RegisteredFleetConfig {
    /// The authority, if it is not that of the state directory.
    authority: Option<SecretString>,
    pub heartbeat_interval: Duration,
    /// `None` if control launches no hosts.
    pub launch: Option<LaunchConfig>,
}

/// Why the authority of the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("the file fleet-ca.pem of the state directory: {0}")]
    Identity(#[from] HostIdentityError),
}

impl RegisteredFleetSettings {
    /// Reads and checks the file of the authority.
    pub fn check(&self) -> Result<RegisteredFleetConfig, SettingsError> {
        let file = self.fleet_ca_file.as_deref();
        let authority =
            token_setting::read_secret(file, ("", None)).map_err(SettingsError::FleetAuthority)?;
        let authority = authority.map(|(authority, _)| authority);
        if let Some(authority) = &authority {
            let parsed = Authority::from_pem(authority);
            parsed.map_err(|error| SettingsError::FleetAuthority(error.to_string()))?;
        }
        Ok(RegisteredFleetConfig {
            authority,
            heartbeat_interval: Duration::from_secs(self.heartbeat_seconds),
            launch: self.launch.check()?,
        })
    }
}

impl RegisteredFleetConfig {
    /// Returns the authority of the fleet. Creates that of the state directory if it has none.
    pub fn open_authority(&self, state_dir: &StateDir) -> Result<Authority, AuthorityError> {
        if let Some(authority) = &self.authority {
            return Ok(Authority::from_pem(authority)?);
        }
        let authority = match state_dir.read_secret(AUTHORITY_FILE)? {
            Some(authority) => authority,
            None => {
                let fresh = Authority::generate()?;
                state_dir.write_secret(AUTHORITY_FILE, fresh.expose_secret())?;
                fresh
            }
        };
        Ok(Authority::from_pem(&authority)?)
    }
}
