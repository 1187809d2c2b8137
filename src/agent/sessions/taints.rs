//! Effects of a session that outlive it.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{agent::session_dir::SessionDir, api::session::Taint, state_dir::replace_file};

/// The taints of a session. Clones share them.
#[derive(Clone, Debug)]
pub struct Taints {
    /// The directory of the session, as requests name it and without links.
    directory: Arc<Path>,
    resolved: Arc<Path>,
    /// The record of an agent that is killed for the next one, which continues the session.
    record: Arc<Path>,
    found: Arc<Mutex<BTreeSet<Taint>>>,
}

impl Taints {
    /// Returns those of the session in `directory`, including those that an earlier agent has
    /// recorded.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn load(directory: &SessionDir) -> io::Result<Self> {
        let record = record_of(directory);
        let found = match fs::read(&record) {
            Ok(record) => serde_json::from_slice(&record)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let directory = directory.root();
        let resolved = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        Ok(Self {
            directory: directory.into(),
            resolved: resolved.into(),
            record: record.into(),
            found: Arc::new(Mutex::new(found)),
        })
    }

    /// Notes that a program is about to run as the user of the agent.
    pub fn program(&self) {
        self.add(Taint::Program);
    }

    /// Notes that `path` is about to be created, changed or removed. Blocks shortly.
    pub fn file(&self, path: &Path) {
        let is_noted = self.found.lock().contains(&Taint::File);
        if !is_noted && !self.contains(path) {
            self.add(Taint::File);
        }
    }

    /// Whether a path leads into the session's directory, also through links.
    fn contains(&self, path: &Path) -> bool {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if climbs || !path.starts_with(&self.directory) {
            return false;
        }
        for existing in path.ancestors() {
            match fs::canonicalize(existing) {
                Ok(target) => return target.starts_with(&self.resolved),
                // A link whose target does not exist yet.
                Err(_) if existing.is_symlink() => return false,
                Err(_) => {}
            }
        }
        false
    }

    pub fn list(&self) -> Vec<Taint> {
        self.found.lock().iter().copied().collect()
    }

    fn add(&self, taint: Taint) {
        let mut found = self.found.lock();
        if !found.insert(taint) {
            return;
        }
        let recorded = serde_json::to_vec(&*found).map_err(io::Error::from);
        if let Err(error) = recorded.and_then(|record| replace_file(&self.record, &record)) {
            tracing::error!(%error, ?taint, "the taint of a session is not recorded");
        }
    }
}

fn record_of(directory: &SessionDir) -> PathBuf {
    directory.run().join("tainted_by")
}
