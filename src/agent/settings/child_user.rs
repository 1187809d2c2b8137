//! The users that Chromium, scripts and client processes run as, and whether Chromium's sandbox and
//! the isolation of client processes are required.

use std::{ffi::CString, str::FromStr};

use nix::unistd::{Gid, Uid, User, getgrouplist};

use super::{Settings, SettingsErrors};
use crate::system::process::session::Credentials;

/// The value of `--chromium-user`, `--script-user` and `--process-user` for a user of the agent's
/// own choice.
const AUTO: &str = "auto";

/// The user that Chromium, a script or a client process runs as if the agent is root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChildUser {
    /// A uid that no other process of the machine uses.
    Dedicated,
    /// A user of the system.
    Named(Credentials),
}

/// Whether a protection is used: Chromium's own sandbox, or the isolation of client processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProtectionMode {
    /// Used wherever the system permits it.
    Auto,
    /// The agent does not start without it.
    Required,
    Off,
}

impl ChildUser {
    /// Looks up the user as [`ChildUser::find`] does. Root is rejected.
    pub(super) fn find_unprivileged(name: &str) -> Result<Self, String> {
        match Self::find(name)? {
            ChildUser::Named(credentials) if credentials.uid.is_root() => {
                Err("must not be root".to_owned())
            }
            found => Ok(found),
        }
    }

    /// Looks up the user, unless it is `auto`. Only root can run a child as another user.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        if name == AUTO {
            return Ok(ChildUser::Dedicated);
        }
        let credentials = find_credentials(name)?;
        let own = Uid::effective();
        if credentials.uid != own && !own.is_root() {
            return Err("cannot switch user: the agent is not running as root".to_owned());
        }
        Ok(ChildUser::Named(credentials))
    }
}

impl Settings {
    /// Returns the users of Chromium, scripts and client processes.
    pub(super) fn resolve_users(&self, errors: &mut SettingsErrors) -> [Option<ChildUser>; 3] {
        let process_user = ChildUser::find_unprivileged(&self.process_user);
        [
            errors.collect("chromium-user", ChildUser::find(&self.chromium_user)),
            errors.collect("script-user", ChildUser::find(&self.script_user)),
            errors.collect("process-user", process_user),
        ]
    }
}

/// Returns the credentials of a user by name or uid. A uid needs no entry in the user database.
fn find_credentials(name: &str) -> Result<Credentials, String> {
    let number = name.parse::<u32>().ok();
    let entry = match number {
        Some(uid) => User::from_uid(Uid::from_raw(uid)),
        None => User::from_name(name),
    };
    match (entry.map_err(|error| error.to_string())?, number) {
        (Some(entry), _) => {
            let name = CString::new(entry.name).map_err(|error| error.to_string())?;
            let groups = getgrouplist(&name, entry.gid).map_err(|error| error.to_string())?;
            Ok(Credentials {
                uid: entry.uid,
                gid: entry.gid,
                groups,
            })
        }
        (None, Some(uid)) => Ok(Credentials {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(uid),
            groups: Vec::new(),
        }),
        (None, None) => Err(format!("no user `{name}`")),
    }
}

impl FromStr for ProtectionMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(ProtectionMode::Auto),
            "required" => Ok(ProtectionMode::Required),
            "off" => Ok(ProtectionMode::Off),
            other => Err(format!("`{other}` is not auto, required or off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_name_and_uid_and_an_unknown_name_is_an_error() {
        assert_eq!(ChildUser::find("auto"), Ok(ChildUser::Dedicated));
        assert!(
            ChildUser::find("no-such-user")
                .unwrap_err()
                .contains("no user")
        );
        let own = Uid::effective();
        let Ok(ChildUser::Named(found)) = ChildUser::find(&own.to_string()) else {
            panic!("the own user is found");
        };
        assert_eq!(found.uid, own);
        let other = ChildUser::find("1234567");
        assert_eq!(other.is_ok(), own.is_root(), "{other:?}");
    }

    #[test]
    fn root_is_no_unprivileged_user() {
        let auto = ChildUser::find_unprivileged("auto");
        assert_eq!(auto, Ok(ChildUser::Dedicated));
        assert!(ChildUser::find_unprivileged("0").is_err());
    }

    #[test]
    fn isolation_mode_is_one_of_three_words() {
        assert_eq!("required".parse(), Ok(ProtectionMode::Required));
        assert!("".parse::<ProtectionMode>().is_err());
    }

    #[test]
    fn sandbox_mode_is_one_of_three_words() {
        assert_eq!("required".parse(), Ok(ProtectionMode::Required));
        assert!("yes".parse::<ProtectionMode>().is_err());
    }
}
