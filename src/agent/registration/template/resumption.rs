//! The identity that a machine got when it was resumed, for an agent that is started again.

use std::{fs, io, net::SocketAddr};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    agent::{settings::ControlConfig, state_dir::StateDir},
    api::fleet::HostAddress,
    system::process::boot::BootTime,
};

/// The identity that a machine got when it was resumed.
#[derive(Serialize, Deserialize)]
pub(super) struct Resumption {
    join_token: String,
    advertise: Option<SocketAddr>,
    /// The id of the run since the resumption.
    boot_id: String,
    /// The kernel's own, which all machines of the snapshot have.
    kernel_boot_id: String,
}

impl Resumption {
    /// Returns a new identity.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub(super) fn new(join_token: String, advertise: Option<SocketAddr>) -> io::Result<Self> {
        Ok(Self {
            join_token,
            advertise,
            boot_id: Uuid::new_v4().to_string(),
            kernel_boot_id: BootTime::now()?.boot_id,
        })
    }

    /// Returns the identity that was stored, if the machine was resumed.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no identity.
    pub(super) fn load(state_dir: &StateDir) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(state_dir.resumption()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => SecretString::from(read?),
        };
        let mut stored: Resumption = serde_json::from_str(text.expose_secret())
            // The parser's error could have a part of the token.
            .map_err(|_| io::Error::other("the stored identity cannot be read"))?;
        let kernel_boot_id = BootTime::now()?.boot_id;
        if stored.kernel_boot_id != kernel_boot_id {
            stored.boot_id = kernel_boot_id;
        }
        Ok(Some(stored))
    }

    /// Stores the identity where only the agent's user can read it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn store(&self, state_dir: &StateDir) -> io::Result<()> {
        let text = SecretString::from(serde_json::to_string(self)?);
        state_dir.write_resumption(text.expose_secret())
    }

    /// Returns the options of the registration, and the id of the run.
    ///
    /// # Errors
    /// Returns the rule for the address.
    pub(super) fn apply(
        &self,
        template: &ControlConfig,
    ) -> Result<(ControlConfig, String), String> {
        let advertised = self.advertise.map(HostAddress::try_from);
        let control = ControlConfig {
            join_token: Some(self.join_token.clone().into()),
            advertised: advertised.transpose()?,
            ..template.clone()
        };
        Ok((control, self.boot_id.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn stored_identity_is_private_and_has_another_run_after_a_reboot() {
        let directory = tempfile::tempdir().unwrap();
        let state_dir = StateDir::new(directory.path()).unwrap();
        let _lock = state_dir.lock().unwrap();
        assert!(Resumption::load(&state_dir).unwrap().is_none());
        let mut resumption = Resumption::new("planted".to_owned(), None).unwrap();
        resumption.store(&state_dir).unwrap();
        let mode = fs::metadata(state_dir.resumption()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let loaded = Resumption::load(&state_dir).unwrap().unwrap();
        assert_eq!(loaded.boot_id, resumption.boot_id);
        assert_eq!(loaded.join_token, "planted");
        let kernel = std::mem::replace(&mut resumption.kernel_boot_id, "earlier".to_owned());
        resumption.store(&state_dir).unwrap();
        let loaded = Resumption::load(&state_dir).unwrap().unwrap();
        assert_eq!(loaded.boot_id, kernel);
        fs::write(state_dir.resumption(), "{\"join_token\": planted").unwrap();
        let error = Resumption::load(&state_dir).err().unwrap();
        assert!(!error.to_string().contains("planted"), "{error}");
    }
}
