//! The file with the key pair of the host.

use std::{fs, io, os::unix::fs::PermissionsExt};

use secrecy::{ExposeSecret, SecretString};

use crate::{agent::state_dir::StateDir, system::identity::HostKey};

/// Reads the key, or creates it. Returns whether it was created.
///
/// # Errors
/// Fails if the file cannot be read or written, is accessible to other users, or holds no key.
pub(super) fn open(state_dir: &StateDir) -> io::Result<(HostKey, bool)> {
    let path = state_dir.host_key();
    let describe =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    match fs::metadata(&path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            return Err(describe(
                &"is accessible to other users; make it private: chmod 600",
            ));
        }
        Ok(_) => {
            let pem = SecretString::from(fs::read_to_string(&path)?);
            let key = HostKey::from_pem(&pem).map_err(|error| describe(&error))?;
            return Ok((key, false));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(describe(&error)),
        Err(_) => {}
    }
    let key = HostKey::generate().map_err(|error| describe(&error))?;
    state_dir.write_host_key(key.to_pem().expose_secret())?;
    Ok((key, true))
}
