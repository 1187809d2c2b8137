//! What an archive lacks, or has otherwise than it was.

use std::path::Path;

use serde::Serialize;

/// Paths that are named; further ones are counted.
const MAX_NAMED: usize = 1_000;

/// What could not be archived as it was.
#[derive(Debug, Default, Serialize)]
pub struct Skipped {
    skipped: Vec<Note>,
    /// How many more there were.
    more: u64,
}

#[derive(Debug, Serialize)]
struct Note {
    path: String,
    reason: String,
}

impl Skipped {
    pub(super) fn note(&mut self, path: &Path, reason: impl Into<String>) {
        if self.skipped.len() == MAX_NAMED {
            self.more += 1;
            return;
        }
        self.skipped.push(Note {
            path: path.to_string_lossy().into_owned(),
            reason: reason.into(),
        });
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skipped.is_empty()
    }

    pub(super) fn first(&self) -> Option<String> {
        let Note { path, reason } = self.skipped.first()?;
        Some(format!("{path}: {reason}"))
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.skipped.len() as u64 + self.more
    }

    /// The list as a file.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}
