//! Which tabs are known to hang, shared by all script workers, so that only the first call pays for finding out.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};

/// Target ids are never reused, so entries of a browser that is gone do no harm; this keeps them few.
const MAX_KNOWN: usize = 4_096;

#[derive(Debug, Default)]
pub struct HungTabs(Mutex<HashSet<String>>);

impl HungTabs {
    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock()
    }

    pub fn add(&self, target: String) {
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        if known.insert(target.clone()) {
            tracing::info!(
                target,
                "a tab does not answer and is passed over until it does"
            );
        }
    }

    pub fn remove(&self, target: &str) {
        self.known().remove(target);
    }

    pub fn contains(&self, target: &str) -> bool {
        self.known().contains(target)
    }
}
