//! The user of a session's programs.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, User};

use super::kill_processes_of;
use crate::{
    agent::{
        session_dir::client_home_in,
        settings::{ChildUser, Config},
    },
    system::process::{dedicated_uid, session::Credentials},
};

/// The name of a user that has no entry in the user database of the machine.
const NAME: &str = "client";
const SHELLS: [&str; 2] = ["/bin/bash", "/bin/sh"];

/// The user of a session's programs, and the environment that they expect.
#[derive(Debug)]
pub(super) struct SessionUser {
    name: String,
    home: PathBuf,
    shell: PathBuf,
    credentials: Credentials,
    is_dedicated: bool,
}

impl SessionUser {
    /// Chooses the user that the settings demand: by default one that no other process of the
    /// machine has, and the one that an earlier agent has chosen for this session. Its processes
    /// are killed then. `chromium` is the uid of Chromium, and `display` the group that may connect
    /// to the display.
    pub(super) fn choose(config: &Config, chromium: Uid, display: Gid) -> Result<Self, String> {
        let directory = config.session_dir.root();
        let home = client_home_in(directory);
        let (mut credentials, is_dedicated) = match &config.process_user {
            ChildUser::Named(credentials) => (credentials.clone(), false),
            ChildUser::Dedicated if !dedicated_uid::are_mapped() => {
                return Err("this user namespace has no uid for client processes alone".to_owned());
            }
            ChildUser::Dedicated => {
                let earlier = recorded_uid(directory);
                if let Some(uid) = earlier {
                    kill_processes_of(uid);
                }
                let uid = dedicated_uid::find(earlier, Some(chromium));
                let uid = uid.map_err(|error| format!("no user can be chosen: {error}"))?;
                let (gid, groups) = (Gid::from_raw(uid.as_raw()), Vec::new());
                (Credentials { uid, gid, groups }, true)
            }
        };
        // The group of Chromium alone: that of downloads and of the display.
        credentials.groups.push(display);
        let entry = User::from_uid(credentials.uid).ok().flatten();
        let shell = SHELLS.into_iter().map(PathBuf::from);
        let shell = shell.into_iter().find(|shell| shell.exists());
        Ok(SessionUser {
            name: entry.map_or_else(|| NAME.to_owned(), |entry| entry.name),
            home: fs::canonicalize(directory).map_or(home, |directory| client_home_in(&directory)),
            shell: shell.unwrap_or_default(),
            credentials,
            is_dedicated,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    pub(super) fn shell(&self) -> &Path {
        &self.shell
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(super) fn dedicated_uid(&self) -> Option<Uid> {
        self.is_dedicated.then_some(self.credentials.uid)
    }

    /// Returns the line of the user in the user database. It comes first, because the first line
    /// with a name or uid counts.
    pub(super) fn passwd_line(&self) -> String {
        let Credentials { uid, gid, .. } = self.credentials;
        let (name, home, shell) = (&self.name, self.home.display(), self.shell.display());
        format!("{name}:x:{uid}:{gid}::{home}:{shell}\n")
    }

    pub(super) fn group_line(&self) -> String {
        format!("{}:x:{}:\n", self.name, self.credentials.gid)
    }
}

/// Returns the uid that an earlier agent has chosen for the session in `directory`.
pub(super) fn recorded_uid(directory: &Path) -> Option<Uid> {
    let owner = fs::metadata(client_home_in(directory)).ok()?.uid();
    Some(Uid::from_raw(owner)).filter(|uid| dedicated_uid::is_dedicated(*uid))
}
