//! Starting a client process: the user, the environment and the program itself.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::Arc,
};

use super::user::{User, UserError};
use crate::{
    agent::display,
    api::process::Launch,
    system::process::{
        session::{Program, StdioMode, WorkingDirectory},
        tree,
    },
};

const TERM: &str = "xterm-256color";

/// The X display that programs may use.
#[derive(Debug, Clone)]
pub struct DisplayAccess {
    pub name: Arc<str>,
    pub authority: PathBuf,
}

impl DisplayAccess {
    /// Returns the variables that give programs of `user` access to the display. They are empty
    /// if the X server refuses that user.
    async fn variables_for(self, user: &User) -> Vec<(&'static str, OsString)> {
        let name = ("DISPLAY", OsString::from(&*self.name));
        let Some(credentials) = &user.credentials else {
            return vec![name, ("XAUTHORITY", self.authority.into())];
        };
        let uid = credentials.uid.as_raw();
        match display::admit(&self.name, &self.authority, uid).await {
            Ok(()) => vec![name],
            Err(error) => {
                tracing::warn!(%error, uid, "cannot give a user access to the display");
                Vec::new()
            }
        }
    }
}

/// Resolves a client's request to the program to start. `current` is the agent's own user.
pub(super) async fn prepare(
    launch: Launch,
    stdio: StdioMode,
    display: Option<DisplayAccess>,
    mark: &str,
    current: &User,
) -> Result<Program, UserError> {
    let user = match &launch.as_user {
        Some(account) => User::find(account).await?,
        None if launch.as_root => User::root(current)?,
        None => current.clone(),
    };
    let display = match display {
        Some(display) => display.variables_for(&user).await,
        None => Vec::new(),
    };
    Ok(Program {
        env: environment(&launch, stdio, &display, mark, &user),
        command: launch.command,
        args: launch.args,
        directory: match launch.cwd {
            Some(path) => WorkingDirectory::Required(path.as_path().to_owned()),
            None => WorkingDirectory::Preferred(user.home),
        },
        credentials: user.credentials,
        stdio,
        cgroup: None,
    })
}

/// Returns the environment. The client's variables override the agent's, except for the mark.
fn environment(
    launch: &Launch,
    stdio: StdioMode,
    display: &[(&'static str, OsString)],
    mark: &str,
    user: &User,
) -> Vec<(OsString, OsString)> {
    let mut env = Vec::new();
    let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.into()));
    set("HOME", user.home.as_os_str());
    set("USER", user.name.as_ref());
    set("LOGNAME", user.name.as_ref());
    set("SHELL", user.shell.as_os_str());
    for (name, value) in display {
        set(name, value);
    }
    if let StdioMode::Terminal(_) = stdio {
        set("TERM", TERM.as_ref());
    }
    for (name, value) in launch.env.iter() {
        set(name, value.as_ref());
    }
    set(tree::MARK, mark.as_ref());
    env
}
