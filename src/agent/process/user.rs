//! The user that a client process runs as.

use std::{ffi::CString, io, path::PathBuf};

use nix::unistd::{Uid, User as PasswdEntry, getgrouplist};

use crate::{agent::isolation::Isolation, api::fs::Account, system::process::session::Credentials};

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("no such user")]
    Unknown,
    #[error("cannot switch user: the agent is not running as root")]
    NotPermitted,
    #[error("cannot look up the user: {0}")]
    Lookup(#[source] io::Error),
}

/// A user and the environment its programs expect.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) home: PathBuf,
    pub(super) shell: PathBuf,
    /// `None` if the agent runs as this user already.
    pub(super) credentials: Option<Credentials>,
}

impl User {
    /// Returns the agent's own user.
    pub(super) fn current() -> Self {
        let uid = Uid::effective();
        match PasswdEntry::from_uid(uid) {
            Ok(Some(entry)) => User::from_entry(entry, None),
            // Containers may run the agent with a uid that has no entry.
            Ok(None) | Err(_) => User {
                name: uid.to_string(),
                home: PathBuf::from("/"),
                shell: PathBuf::from("/bin/sh"),
                credentials: None,
            },
        }
    }

    /// Looks up a user by name or uid.
    pub(super) async fn find(account: &Account) -> Result<Self, UserError> {
        let account = account.clone();
        // The user database may be on a remote server.
        let found = tokio::task::spawn_blocking(move || Self::find_blocking(&account)).await;
        found.map_err(|error| UserError::Lookup(io::Error::other(error)))?
    }

    fn find_blocking(account: &Account) -> Result<Self, UserError> {
        let found = match account.as_str().parse() {
            Ok(uid) => PasswdEntry::from_uid(Uid::from_raw(uid)),
            Err(_) => PasswdEntry::from_name(account.as_str()),
        };
        let found = found.map_err(|error| UserError::Lookup(error.into()))?;
        let entry = found.ok_or(UserError::Unknown)?;
        let own = Uid::effective();
        let credentials = match entry.uid == own {
            true => None,
            false if own.is_root() => Some(credentials(&entry)?),
            false => return Err(UserError::NotPermitted),
        };
        Ok(User::from_entry(entry, credentials))
    }

    fn from_entry(entry: PasswdEntry, credentials: Option<Credentials>) -> Self {
        User {
            name: entry.name,
            home: entry.dir,
            shell: entry.shell,
            credentials,
        }
    }

    /// Returns the user that only the session has.
    pub(super) fn of_session(isolation: &Isolation) -> Self {
        User {
            name: isolation.user_name(),
            home: isolation.home(),
            shell: isolation.shell(),
            credentials: Some(isolation.credentials()),
        }
    }

    /// Returns root if the agent, whose user is `current`, runs as root.
    pub(super) fn root(current: &User) -> Result<Self, UserError> {
        match Uid::effective().is_root() {
            true => Ok(current.clone()),
            false => Err(UserError::NotPermitted),
        }
    }
}

fn credentials(entry: &PasswdEntry) -> Result<Credentials, UserError> {
    let name = CString::new(entry.name.as_str()).map_err(|_| UserError::Unknown)?;
    let groups = getgrouplist(&name, entry.gid).map_err(|error| UserError::Lookup(error.into()))?;
    Ok(Credentials {
        uid: entry.uid,
        gid: entry.gid,
        groups,
    })
}
