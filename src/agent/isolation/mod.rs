//! The isolation of the programs of a session's clients: a user, a home directory, and a mount
//! namespace in which the directories that all users can write to are the session's.
//!
//! ```text
//! on the machine                       in the session
//! <session>/private/tmp, var-tmp, …    /tmp, /var/tmp, /run/lock
//! a file system in memory              /dev/shm
//! /tmp/.X11-unix                       /tmp/.X11-unix
//! <session>                            at its own path, also below /tmp
//! <session>/private/passwd, group      /etc/passwd, /etc/group: only for the session's user
//! ```
//!
//! Programs, file operations, logs and Chromium all use this namespace. Everything in it is removed
//! with the session's directory, or with the namespace, which ends with its last process.

mod directories;
mod user;

use std::{io, path::PathBuf, sync::Arc};

use nix::unistd::{Gid, Uid};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use self::{directories::plan, user::SessionUser};
use super::{
    chromium,
    fs::access::FileAccess,
    sessions::{Sessions, Taints},
    settings::{Config, ProtectionMode},
};
use crate::system::{
    files::{protected::ProtectedTree, root::RootDirectory},
    process::{
        confinement::Confinement,
        mount_namespace::{MountNamespace, MountNamespaces, PassedNamespaces},
        session::Credentials,
        stat,
    },
};

/// A required isolation that the system does not permit.
#[derive(Debug, thiserror::Error)]
#[error("--process-isolation: the isolation of client processes is required, but {0}")]
pub struct IsolationUnavailable(String);

/// The isolation of a session's programs. Clones share it.
#[derive(Clone, Debug)]
pub struct Isolation {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    user: SessionUser,
    namespaces: MountNamespaces,
    root: RootDirectory,
    /// The cookie of the display that the user has been admitted to.
    admitted: Mutex<Option<Vec<u8>>>,
}

impl Isolation {
    /// Creates the isolation of the session that the configuration is for, and makes Chromium share
    /// its directories. Returns `None` if the settings demand none, or if the system permits none
    /// and the settings do not require it. `passed` are the namespaces of the program before.
    ///
    /// # Errors
    /// If it is required and not permitted.
    pub(super) async fn start(
        config: &Config,
        chromium: chromium::Identity,
        passed: Option<PassedNamespaces>,
    ) -> Result<(Option<Self>, chromium::Identity), IsolationUnavailable> {
        let mode = config.process_isolation;
        if mode == ProtectionMode::Off {
            tracing::info!("client processes run as the agent's user, without isolation");
            return Ok((None, chromium));
        }
        let (config, uid, gid) = (config.clone(), chromium.uid(), chromium.gid());
        let created = spawn_blocking(move || Self::create(&config, uid, gid, passed));
        let created = created.await.unwrap_or_else(|panic| Err(panic.to_string()));
        match created {
            Ok(isolation) => {
                let uid = isolation.inner.user.credentials().uid.as_raw();
                tracing::info!(
                    uid,
                    "client processes have a user and directories of their own"
                );
                let chromium = chromium.in_namespace(isolation.shared_namespace());
                Ok((Some(isolation), chromium))
            }
            Err(reason) if mode == ProtectionMode::Required => Err(IsolationUnavailable(reason)),
            Err(reason) => {
                tracing::warn!(reason, "client processes run as the agent's user");
                Ok((None, chromium))
            }
        }
    }

    /// Blocks for some milliseconds.
    fn create(
        config: &Config,
        chromium: Uid,
        display: Gid,
        passed: Option<PassedNamespaces>,
    ) -> Result<Self, String> {
        if !Uid::effective().is_root() {
            return Err("the agent is not running as root".to_owned());
        }
        if let Some(missing) = chromium::missing_capabilities() {
            return Err(missing);
        }
        if chromium.is_root() {
            return Err("Chromium runs as root".to_owned());
        }
        let user = SessionUser::choose(config, chromium, display)?;
        let describe = |error: io::Error| format!("its directories cannot be mounted: {error}");
        let plan = plan(config, &user).map_err(describe)?;
        let namespaces = match passed {
            Some(passed) => MountNamespaces::adopt(passed),
            None => MountNamespaces::create(plan).map_err(describe)?,
        };
        let root = namespaces.root.try_clone().map_err(describe)?;
        let root = RootDirectory::of_namespace(root, namespaces.shared.descriptor());
        Ok(Self {
            inner: Arc::new(Inner {
                user,
                namespaces,
                root,
                admitted: Mutex::default(),
            }),
        })
    }

    /// Returns the namespace of programs of other users than the session's, which shows them the
    /// session's directories and the user database of the machine.
    pub(super) fn shared_namespace(&self) -> MountNamespace {
        self.inner.namespaces.shared.clone()
    }

    /// Returns the namespace of the programs of the session's user.
    pub(super) fn user_namespace(&self) -> MountNamespace {
        self.inner.namespaces.user.clone()
    }

    pub(super) fn credentials(&self) -> Credentials {
        self.inner.user.credentials().clone()
    }

    pub(super) fn user_name(&self) -> String {
        self.inner.user.name().to_owned()
    }

    pub(super) fn home(&self) -> PathBuf {
        self.inner.user.home().to_owned()
    }

    pub(super) fn shell(&self) -> PathBuf {
        self.inner.user.shell().to_owned()
    }

    /// Returns the uid if no other process of the system has it.
    pub(super) fn dedicated_uid(&self) -> Option<Uid> {
        self.inner.user.dedicated_uid()
    }

    /// Returns the namespaces for the next program of the agent.
    ///
    /// # Errors
    /// If they cannot be passed on.
    pub(super) fn pass(&self) -> io::Result<PassedNamespaces> {
        self.inner.namespaces.pass()
    }

    /// Returns whether the display with this cookie is not the one that the user was admitted to
    /// last.
    pub(super) fn needs_admission(&self, cookie: &[u8]) -> bool {
        self.inner.admitted.lock().as_deref() != Some(cookie)
    }

    /// Records that the user has been admitted to the display with this cookie.
    pub(super) fn set_admitted(&self, cookie: &[u8]) {
        *self.inner.admitted.lock() = Some(cookie.to_owned());
    }

    /// Kills all processes of a dedicated user, also those that have left their process trees.
    /// Blocks for some milliseconds if there are any.
    pub(super) fn kill_processes(&self) {
        if let Some(uid) = self.dedicated_uid() {
            kill_processes_of(uid);
        }
    }
}

/// Returns the taints of the session, which also taint the machine, and how file operations reach
/// its files and no others of the agent.
///
/// # Errors
/// If the record of the taints cannot be read, or the agent's directories cannot be opened.
pub(super) fn file_access(
    config: &Config,
    isolation: Option<&Isolation>,
    sessions: &Sessions,
) -> io::Result<(Taints, FileAccess)> {
    let taints = Taints::load(&config.session_dir, sessions.machine_taint().clone())?;
    let (root, user, taints) = match isolation {
        Some(Isolation { inner }) => {
            let Credentials { uid, gid, .. } = *inner.user.credentials();
            let taints = taints.with_mounts(inner.namespaces.own_mounts.clone());
            (inner.root.clone(), Some((uid, gid)), taints)
        }
        None => (RootDirectory::default(), None, taints),
    };
    let layout = config.state_dir.protected(&config.session_dir);
    let protected = ProtectedTree::find(&layout, &root)?;
    let root = root.protecting(protected);
    Ok((taints.clone(), FileAccess::new(root, user, taints)))
}

/// Kills all processes of a dedicated user. Blocks for some milliseconds if there are any.
fn kill_processes_of(uid: Uid) {
    if stat::living_of(&[uid]).is_empty() {
        return;
    }
    let credentials = Credentials {
        uid,
        gid: Gid::from_raw(uid.as_raw()),
        groups: Vec::new(),
    };
    if let Err(error) = Confinement::new(credentials, &[]).kill_all() {
        tracing::warn!(%error, "cannot kill the processes of a session's user");
    }
}

/// Kills the processes of the user of the session in `directory`, whose agent was killed.
pub(super) fn kill_left_processes(directory: &std::path::Path) {
    if let Some(uid) = user::recorded_uid(directory) {
        kill_processes_of(uid);
    }
}
