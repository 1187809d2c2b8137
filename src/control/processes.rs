//! The control processes that serve from one database: what they have in common, and which of them
//! leads.
//!
//! Processes with local hosts serve alone, because no other process reaches these hosts. Several
//! processes with registered hosts may serve from one PostgreSQL database. Any of them serves any
//! request; the one that leads ([`Leadership`]) does what is not the consequence of a request, and
//! finishes the work of those that have died.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::{Digest, Sha256};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    ControlError,
    blobs::BlobStore,
    settings::{Config, DatabaseConfig},
    state_dir::StateDir,
    store::{Displaced, Fleet, HintChannel, NewProcess, ProcessLock, Store},
};
use crate::{shutdown::Shutdown, system::identity::Authority};

/// Whether this process leads.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// `None` if there is no other process.
    leads: Option<watch::Receiver<bool>>,
}

/// The task that holds the locks of a PostgreSQL database until shutdown.
pub(super) type ProcessLockTask = JoinHandle<Result<ProcessLock, Displaced>>;

/// This process among those that serve from the database.
pub(super) struct Membership {
    pub(super) leadership: Leadership,
    /// Has the locks, if other processes could serve from the database.
    pub(super) lock: Option<ProcessLockTask>,
    pub(super) hints: Option<HintChannel>,
}

impl Leadership {
    fn always() -> Leadership {
        Leadership { leads: None }
    }

    /// Returns whether this process leads, as it changes. `None` if there is no other process.
    pub fn watch(&self) -> Option<watch::Receiver<bool>> {
        self.leads.clone()
    }

    /// Returns whether this process leads now.
    pub fn leads(&self) -> bool {
        self.leads.as_ref().is_none_or(|leads| *leads.borrow())
    }
}

/// Makes this process one of those that serve from the database, or the only one. Returns the store
/// that it uses from now on.
pub(super) async fn join(
    store: &Store,
    config: &Config,
    state_dir: &StateDir,
    blobs: &BlobStore,
    secrets: (&SecretSlice<u8>, &Authority),
    shutdown: &Shutdown,
) -> Result<(Store, Membership), ControlError> {
    let process = new_process(config, state_dir, blobs, secrets)?;
    let DatabaseConfig::Postgres(database) = &config.database else {
        let membership = Membership {
            leadership: Leadership::always(),
            lock: None,
            hints: None,
        };
        return Ok((store.begin_process(process).await?, membership));
    };
    let (store, lock, hints) = store.join_processes(database, process).await?;
    let leads = Some(lock.leads());
    let membership = Membership {
        leadership: Leadership { leads },
        lock: Some(shutdown.spawn(lock.hold(shutdown.clone()))),
        hints: Some(hints),
    };
    Ok((store, membership))
}

fn new_process(
    config: &Config,
    state_dir: &StateDir,
    blobs: &BlobStore,
    (session_secret, authority): (&SecretSlice<u8>, &Authority),
) -> Result<NewProcess, ControlError> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let is_exclusive = config.host_fleet == Fleet::Local;
    let id = state_dir.id()?;
    let shared_blobs = blobs.shared_id();
    let has_files = is_exclusive || shared_blobs.is_none();
    let blob_store = shared_blobs.unwrap_or_else(|| format!("directory {id}"));
    let mut common = Sha256::new();
    for part in [
        session_secret.expose_secret(),
        authority.certificate().as_bytes(),
        blob_store.as_bytes(),
    ] {
        common.update(Sha256::digest(part));
    }
    Ok(NewProcess {
        is_exclusive,
        state_dir: has_files.then_some(id),
        common: BASE64_URL_SAFE_NO_PAD.encode(common.finalize()),
        location: format!("{}:{}", host.display(), state_dir.path().display()),
    })
}
