//! The list of entries that an archive lacks or contains in altered form.

use std::path::Path;

use serde::Serialize;

/// The limit on listed entries; further ones are only counted.
const MAX_LISTED: usize = 1_000;

/// The entries that could not be archived unchanged. The serialized form is the last entry of the
/// archive.
#[derive(Debug, Default, Serialize)]
pub struct SkippedEntries {
    skipped: Vec<SkippedEntry>,
    /// The number of entries that are not listed.
    more: u64,
}

#[derive(Debug, Serialize)]
struct SkippedEntry {
    path: String,
    reason: String,
}

impl SkippedEntry {
    fn describe(&self) -> String {
        format!("{}: {}", self.path.escape_debug(), self.reason)
    }
}

impl SkippedEntries {
    pub(super) fn add(&mut self, path: &Path, reason: impl Into<String>) {
        if self.skipped.len() == MAX_LISTED {
            self.more += 1;
            return;
        }
        self.skipped.push(SkippedEntry {
            path: path.to_string_lossy().into_owned(),
            reason: reason.into(),
        });
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skipped.is_empty()
    }

    /// Describes the first entry.
    pub(super) fn describe_first(&self) -> Option<String> {
        self.skipped.first().map(SkippedEntry::describe)
    }

    /// Describes the listed entries, and how many are not listed.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more entries", self.more));
        self.skipped.iter().map(SkippedEntry::describe).chain(more)
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.skipped.len() as u64 + self.more
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}
