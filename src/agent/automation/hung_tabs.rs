//! The tabs known to hang, shared by all script workers, so that only the first call waits to find
//! out.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The most tabs remembered. Target ids are never reused, so ids of an earlier browser do no harm;
/// this bounds their number.
const MAX_TABS: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct HungTabs(Mutex<HashSet<String>>);

impl HungTabs {
    pub(super) fn add(&self, target: String) {
        let mut targets = self.0.lock();
        if targets.len() >= MAX_TABS {
            targets.clear();
        }
        if targets.insert(target.clone()) {
            tracing::info!(target, "tab hangs, skipping it until it answers");
        }
    }

    pub(super) fn remove(&self, target: &str) {
        self.0.lock().remove(target);
    }

    pub(super) fn contains(&self, target: &str) -> bool {
        self.0.lock().contains(target)
    }
}
