//! Who a process runs as.

use std::{ffi::CString, io, path::PathBuf};

use nix::unistd::{Uid, User, getgrouplist};

use crate::{api::fs::Account as Name, system::process::session::Credentials};

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("there is no such user")]
    Unknown,
    #[error("the agent does not run as root, so nobody else can be run as")]
    NotPermitted,
    #[error("users cannot be looked up: {0}")]
    Lookup(#[source] io::Error),
}

/// A user as programs know it.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    pub home: PathBuf,
    pub shell: PathBuf,
    /// The rights to take; `None` where the agent has them already.
    pub credentials: Option<Credentials>,
}

/// The agent's own.
pub fn own() -> Account {
    let uid = Uid::effective();
    match User::from_uid(uid) {
        Ok(Some(user)) => Account {
            name: user.name,
            home: user.dir,
            shell: user.shell,
            credentials: None,
        },
        // A container may run us as somebody it has no name for.
        Ok(None) | Err(_) => Account {
            name: uid.to_string(),
            home: PathBuf::from("/"),
            shell: PathBuf::from("/bin/sh"),
            credentials: None,
        },
    }
}

/// The user of that name or number.
pub async fn named(name: &Name) -> Result<Account, AccountError> {
    let name = name.clone();
    // The system's list of users may be a file, or a server far away.
    let looked_up = tokio::task::spawn_blocking(move || look_up(&name)).await;
    looked_up.map_err(|error| AccountError::Lookup(io::Error::other(error)))?
}

/// Root, which is the agent's own user or nobody's.
pub fn root(own: &Account) -> Result<Account, AccountError> {
    match Uid::effective().is_root() {
        true => Ok(own.clone()),
        false => Err(AccountError::NotPermitted),
    }
}

fn look_up(name: &Name) -> Result<Account, AccountError> {
    let found = match name.as_str().parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name.as_str()),
    };
    let found = found.map_err(|error| AccountError::Lookup(error.into()))?;
    let user = found.ok_or(AccountError::Unknown)?;
    let own = Uid::effective();
    let credentials = match user.uid == own {
        true => None,
        false if own.is_root() => Some(rights_of(&user)?),
        false => return Err(AccountError::NotPermitted),
    };
    Ok(Account {
        name: user.name,
        home: user.dir,
        shell: user.shell,
        credentials,
    })
}

fn rights_of(user: &User) -> Result<Credentials, AccountError> {
    let name = CString::new(user.name.as_str()).map_err(|_| AccountError::Unknown)?;
    let groups =
        getgrouplist(&name, user.gid).map_err(|error| AccountError::Lookup(error.into()))?;
    Ok(Credentials {
        uid: user.uid,
        gid: user.gid,
        groups,
    })
}
