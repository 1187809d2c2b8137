//! The user that Chromium runs as, and its sandbox: decided once, when the agent starts.
//!
//! ```text
//! agent is root: a uid of its own (`dedicated`) or --chromium-user ─► probe ─► Confinement
//! otherwise:     the agent's user                                  ─► probe
//!                                                 namespaces, or the setuid helper ─► Sandbox
//! ```
//!
//! The probe really becomes that user and really creates namespaces. If a user of its own is
//! impossible (a container may lack the rights), Chromium runs as the agent's user, unless
//! `--chromium-user` names one or a sandbox is required.

mod dedicated;
mod sandbox;

use std::{io, path::Path};

use nix::unistd::{Gid, Uid};
use tokio::{process::Command, task::spawn_blocking};

use self::sandbox::{SandboxUnavailable, Support};
pub(in crate::agent) use self::{dedicated::missing_capabilities, sandbox::Sandbox};
use crate::{
    agent::settings::{ChildUser, Config, ProtectionMode},
    system::{
        media::sound,
        process::{
            confinement::{Confinement, Missing, probe},
            mount_namespace::MountNamespace,
            session::Credentials,
        },
    },
};

/// Chromium's flag that disables its sandbox.
const NO_SANDBOX: &str = "--no-sandbox";

/// Why Chromium cannot run as the settings demand.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("--chromium-user: cannot run Chromium as uid {uid}: {reason}")]
    User { uid: Uid, reason: String },
    #[error("--chromium-sandbox: {0}")]
    Sandbox(#[from] SandboxUnavailable),
    #[error("cannot examine what Chromium's user may do: {0}")]
    Probe(#[from] io::Error),
}

/// The user that Chromium runs as, and its sandbox.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Identity {
    /// `None` if Chromium runs as the agent's user.
    confinement: Option<Confinement>,
    /// Whether no other process of the system has the uid.
    is_dedicated: bool,
    sandbox: Sandbox,
    /// `None` if Chromium runs in the agent's own.
    namespace: Option<MountNamespace>,
}

impl Identity {
    /// Chooses the user and examines what it may do. Creates nothing. `is_running` is whether the
    /// session's Chromium runs already: its user is kept.
    pub(in crate::agent) async fn resolve(
        config: &Config,
        is_running: bool,
    ) -> Result<Self, IdentityError> {
        let settings = config.clone();
        let examined = spawn_blocking(move || Examined::new(&settings, is_running)).await;
        let examined = examined.map_err(io::Error::other)??;
        let support = Support {
            is_root: examined.uid().is_root(),
            user_problem: examined.user_problem,
            namespaces: examined.namespaces,
            helper: sandbox::probe_helper(&config.chromium, examined.confinement.as_ref()).await,
        };
        let is_disabled_by_flag = config.chromium_flags.iter().any(|flag| flag == NO_SANDBOX);
        let sandbox = sandbox::decide(config.chromium_sandbox, is_disabled_by_flag, support)?;
        let identity = Identity {
            is_dedicated: examined.confinement.is_some()
                && config.chromium_user == ChildUser::Dedicated,
            confinement: examined.confinement,
            sandbox,
            namespace: None,
        };
        identity.log(config.chromium_sandbox);
        Ok(identity)
    }

    pub(in crate::agent) fn uid(&self) -> Uid {
        let credentials = self.credentials();
        credentials.map_or_else(Uid::effective, |credentials| credentials.uid)
    }

    pub(in crate::agent) fn gid(&self) -> Gid {
        let credentials = self.credentials();
        credentials.map_or_else(Gid::effective, |credentials| credentials.gid)
    }

    /// Returns the uid if no other process of the system has it.
    pub(in crate::agent) fn dedicated_uid(&self) -> Option<Uid> {
        self.is_dedicated.then(|| self.uid())
    }

    pub(in crate::agent) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Makes Chromium run in a mount namespace.
    pub(in crate::agent) fn in_namespace(self, namespace: MountNamespace) -> Self {
        Identity {
            namespace: Some(namespace),
            ..self
        }
    }

    /// Makes a command run as Chromium's user, in its mount namespace.
    pub(super) fn confine(&self, command: &mut Command) {
        if let Some(namespace) = &self.namespace {
            namespace.enter_at_start(command);
        }
        if let Some(confinement) = &self.confinement {
            confinement.confine(command);
        }
    }

    /// Kills all processes of a dedicated user, also those that left Chromium's process group.
    /// Blocks for some milliseconds.
    pub(super) fn kill_processes(&self) {
        if let Some(confinement) = self.confinement.as_ref().filter(|_| self.is_dedicated)
            && let Err(error) = confinement.kill_all()
        {
            tracing::warn!(%error, "cannot kill the processes of Chromium's user");
        }
    }

    fn credentials(&self) -> Option<&Credentials> {
        self.confinement.as_ref().map(Confinement::credentials)
    }

    fn log(&self, mode: ProtectionMode) {
        let (uid, sandbox) = (self.uid().as_raw(), self.sandbox.name());
        match self.sandbox.reason() {
            Some(reason) if mode != ProtectionMode::Off => {
                tracing::warn!(uid, reason, "Chromium runs without its sandbox");
            }
            reason => tracing::info!(uid, sandbox, reason, "decided how Chromium runs"),
        }
    }
}

/// The user that Chromium can run as, and whether this user can create namespaces.
struct Examined {
    confinement: Option<Confinement>,
    /// Why Chromium has no user of its own, although the agent is root.
    user_problem: Option<String>,
    namespaces: Result<(), String>,
}

impl Examined {
    /// Blocks for some milliseconds.
    fn new(config: &Config, is_running: bool) -> Result<Self, IdentityError> {
        let (credentials, is_named) = match &config.chromium_user {
            _ if !Uid::effective().is_root() => (None, true),
            ChildUser::Named(credentials) if credentials.uid.is_root() => (None, true),
            ChildUser::Named(credentials) => (Some(credentials.clone()), true),
            ChildUser::Dedicated => {
                let user_data = config.session_dir.user_data();
                (Some(dedicated::credentials(&user_data, is_running)?), false)
            }
        };
        let Some(credentials) = credentials else {
            return Self::own_user(config, None);
        };
        let uid = credentials.uid;
        let confinement = Confinement::new(credentials, &needed_paths(config));
        let missing = examine(Some(&confinement), config)?;
        let reason = dedicated::missing_capabilities().or_else(|| describe(&missing, config));
        match reason {
            None => Ok(Examined {
                namespaces: namespaces_of(&missing),
                confinement: Some(confinement),
                user_problem: None,
            }),
            Some(reason) if is_named => Err(IdentityError::User { uid, reason }),
            Some(reason) => Self::own_user(config, Some(reason)),
        }
    }

    fn own_user(config: &Config, user_problem: Option<String>) -> Result<Self, IdentityError> {
        let missing = examine(None, config)?;
        Ok(Examined {
            confinement: None,
            user_problem,
            namespaces: namespaces_of(&missing),
        })
    }

    fn uid(&self) -> Uid {
        let credentials = self.confinement.as_ref().map(Confinement::credentials);
        credentials.map_or_else(Uid::effective, |credentials| credentials.uid)
    }
}

fn examine(confinement: Option<&Confinement>, config: &Config) -> io::Result<Missing> {
    probe(confinement, &config.chromium, config.session_dir.root())
}

/// Returns the paths that Chromium's user must reach.
pub(in crate::agent) fn needed_paths(config: &Config) -> Vec<&Path> {
    let program = config.chromium.parent();
    let sound = config.pulse_server.as_deref().and_then(sound::socket_path);
    let paths = [Some(config.session_dir.root()), program, sound];
    paths.into_iter().flatten().collect()
}

fn namespaces_of(missing: &Missing) -> Result<(), String> {
    match missing.namespaces {
        None => Ok(()),
        Some(errno) => Err(errno.desc().to_owned()),
    }
}

/// Describes why a user cannot run Chromium.
fn describe(missing: &Missing, config: &Config) -> Option<String> {
    let root = config.session_dir.root().display();
    let program = config.chromium.display();
    match missing {
        Missing {
            mounts: Some(errno),
            ..
        } => Some(format!(
            "{root} or {program} is below a directory that only root can enter, and mounting it elsewhere failed: {}",
            errno.desc()
        )),
        Missing {
            user: Some(errno), ..
        } => Some(format!("cannot switch user: {}", errno.desc())),
        Missing {
            program: Some(errno),
            ..
        } => Some(format!("cannot execute {program}: {}", errno.desc())),
        Missing {
            directory: Some(errno),
            ..
        } => Some(format!("cannot enter {root}: {}", errno.desc())),
        _ => None,
    }
}
