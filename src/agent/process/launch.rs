//! Starting a client process: the user, the environment and the program itself.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::Arc,
};

use super::user::{User, UserError};
use crate::{
    agent::{display, isolation::Isolation},
    api::process::Launch,
    system::{
        process::{
            session::{Program, StdioMode, WorkingDirectory},
            tree,
        },
        x11::server::X11Error,
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
    async fn variables_for(
        self,
        user: &User,
        own: Option<&Isolation>,
    ) -> Vec<(&'static str, OsString)> {
        let name = ("DISPLAY", OsString::from(&*self.name));
        let Some(credentials) = &user.credentials else {
            return vec![name, ("XAUTHORITY", self.authority.into())];
        };
        let uid = credentials.uid.as_raw();
        let admitted = match own {
            Some(isolation) => self.admit_once(isolation, uid).await,
            None => display::admit(&self.name, &self.authority, uid).await,
        };
        match admitted {
            Ok(()) => vec![name],
            Err(error) => {
                tracing::warn!(%error, uid, "cannot give a user access to the display");
                Vec::new()
            }
        }
    }
}

impl DisplayAccess {
    /// Admits the session's user, unless this display has admitted it before. Each display has a
    /// cookie of its own.
    async fn admit_once(&self, isolation: &Isolation, uid: u32) -> Result<(), X11Error> {
        let cookie = display::read_authority(&self.authority)?;
        if isolation.needs_admission(&cookie) {
            display::admit(&self.name, &self.authority, uid).await?;
            isolation.set_admitted(&cookie);
        }
        Ok(())
    }
}

/// The users that programs run as by default.
#[derive(Clone, Copy)]
pub(super) struct Users<'a> {
    /// The agent's own.
    pub(super) agent: &'a User,
    pub(super) isolation: Option<&'a Isolation>,
}

/// Resolves a client's request to the program to start.
pub(super) async fn prepare(
    launch: Launch,
    stdio: StdioMode,
    display: Option<DisplayAccess>,
    mark: &str,
    users: &Users<'_>,
) -> Result<Program, UserError> {
    // The session's own user, unless the request names another one.
    let own = users
        .isolation
        .filter(|_| launch.as_user.is_none() && !launch.as_root);
    let user = match (&launch.as_user, own) {
        (Some(account), _) => User::find(account).await?,
        (None, Some(isolation)) => User::of_session(isolation),
        (None, None) if launch.as_root => User::root(users.agent)?,
        (None, None) => users.agent.clone(),
    };
    let display = match display {
        Some(display) => display.variables_for(&user, own).await,
        None => Vec::new(),
    };
    let namespace = match own {
        Some(isolation) => Some(isolation.user_namespace()),
        None => users.isolation.map(Isolation::shared_namespace),
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
        namespace,
        can_gain_rights: own.is_none(),
        stdio,
        output_pipes: None,
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
