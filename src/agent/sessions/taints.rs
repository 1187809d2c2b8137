//! Effects of a session that outlive it.

use std::{
    collections::{BTreeSet, HashSet},
    fs, io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::MachineTaint;
use crate::{
    agent::session_dir::SessionDir,
    api::session::Taint,
    state_dir::{replace_private_file, sync_parent},
    system::{files::directory::descriptor_path, process::mount_namespace::mount_of},
};

/// The taints of a session. Clones share them.
#[derive(Clone, Debug)]
pub struct Taints {
    own: OwnFiles,
    /// The record of an agent that is killed for the next one, which continues the session.
    record: Arc<Path>,
    machine: MachineTaint,
    found: Arc<Mutex<BTreeSet<Taint>>>,
}

/// The files that end with a session.
#[derive(Clone, Debug)]
enum OwnFiles {
    /// The files in a directory, whose path is without links.
    Below(Arc<Path>),
    /// The files on the mounts with these numbers, which only the session's namespace has.
    Mounted(Arc<HashSet<u64>>),
}

impl Taints {
    /// Returns those of the session in `directory`, including those that an earlier agent has
    /// recorded. `machine` is tainted with the session.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn load(directory: &SessionDir, machine: MachineTaint) -> io::Result<Self> {
        let record = record_of(directory);
        let found: BTreeSet<Taint> = match fs::read(&record) {
            Ok(record) => serde_json::from_slice(&record)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        for taint in &found {
            machine.set(reason(*taint));
        }
        let directory = directory.root();
        let resolved = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        Ok(Self {
            own: OwnFiles::Below(resolved.into()),
            record: record.into(),
            machine,
            found: Arc::new(Mutex::new(found)),
        })
    }

    /// Makes the files on these mounts those of the session, and no others.
    pub(in crate::agent) fn with_mounts(mut self, mounts: HashSet<u64>) -> Self {
        self.own = OwnFiles::Mounted(Arc::new(mounts));
        self
    }

    /// Notes that a program is about to run as a user that the session does not have alone. The
    /// record of that is on the disk when this returns.
    pub async fn program(&self) {
        if !self.found.lock().contains(&Taint::Program) {
            let this = self.clone();
            // Fails only when the agent ends, which starts no program then.
            let _ = spawn_blocking(move || this.add(Taint::Program)).await;
        }
    }

    /// Notes that an open file, or an entry of an open directory, is about to change. The record of
    /// that is on the disk when this returns. Blocks.
    pub fn change(&self, entry: BorrowedFd<'_>) {
        let is_noted = self.found.lock().contains(&Taint::File);
        if !is_noted && !self.own.contains(entry) {
            self.add(Taint::File);
        }
    }

    pub fn list(&self) -> Vec<Taint> {
        self.found.lock().iter().copied().collect()
    }

    fn add(&self, taint: Taint) {
        let mut found = self.found.lock();
        if !found.insert(taint) {
            return;
        }
        self.machine.set(reason(taint));
        let recorded = serde_json::to_vec(&*found).map_err(io::Error::from);
        let recorded = recorded.and_then(|record| replace_private_file(&self.record, &record));
        if let Err(error) = recorded.and_then(|()| sync_parent(&self.record)) {
            tracing::error!(%error, ?taint, "the taint of a session is not recorded");
        }
    }
}

impl OwnFiles {
    fn contains(&self, entry: BorrowedFd<'_>) -> bool {
        match self {
            OwnFiles::Below(directory) => {
                let path = fs::read_link(descriptor_path(&entry));
                path.is_ok_and(|path| path.starts_with(directory))
            }
            OwnFiles::Mounted(mounts) => mount_of(entry).is_ok_and(|id| mounts.contains(&id)),
        }
    }
}

/// Returns why a session with this taint taints the machine.
fn reason(taint: Taint) -> &'static str {
    match taint {
        Taint::Program => "a program ran as a user that its session did not have alone",
        Taint::File => "a file outside the directories of its session was changed",
    }
}

fn record_of(directory: &SessionDir) -> PathBuf {
    directory.run().join("tainted_by")
}
