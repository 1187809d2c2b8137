//! Effects of a session that outlive it.

use std::{
    collections::BTreeSet,
    path::{Component, Path},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::api::session::Taint;

/// The taints of a session. Clones share them.
#[derive(Clone, Debug)]
pub struct Taints {
    directory: Arc<Path>,
    found: Arc<Mutex<BTreeSet<Taint>>>,
}

impl Taints {
    /// Returns those of the session in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            found: Arc::default(),
        }
    }

    /// Notes that a program runs as the user of the agent.
    pub fn program(&self) {
        self.found.lock().insert(Taint::Program);
    }

    /// Notes that `path` is about to be created, changed or removed.
    pub fn file(&self, path: &Path) {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if climbs || !path.starts_with(&self.directory) {
            self.found.lock().insert(Taint::File);
        }
    }

    pub fn list(&self) -> Vec<Taint> {
        self.found.lock().iter().copied().collect()
    }
}
