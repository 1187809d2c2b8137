//! The record that a session has changed this machine for good. It lasts as long as the state
//! directory, whatever identity the agent has at control.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::state_dir::{open_private_file, sync_parent};

/// The length of the record in bytes. It is written within one sector, which changes as a whole,
/// and over blanks, which needs no space on a disk that a client has filled.
const LENGTH: usize = 128;

/// The record of what makes the machine unusable for other identities. Clones share it.
#[derive(Clone, Debug)]
pub struct MachineTaint {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    record: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    reason: Option<String>,
    is_recorded: bool,
}

impl MachineTaint {
    /// Opens the record, and creates an empty one if there is none. Blocks.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or written, or is no text.
    pub(in crate::agent) fn open(path: &Path) -> io::Result<Self> {
        let record = open_private_file(path)?;
        let mut text = String::new();
        (&record).take(LENGTH as u64).read_to_string(&mut text)?;
        let reason = Some(text.trim()).filter(|reason| !reason.is_empty());
        let state = State {
            reason: reason.map(str::to_owned),
            is_recorded: reason.is_some(),
        };
        if text.len() < LENGTH && reason.is_none() {
            record.write_all_at(&[b' '; LENGTH], 0)?;
            record.sync_all()?;
            sync_parent(path)?;
        }
        Ok(Self {
            inner: Arc::new(Inner {
                record,
                state: Mutex::new(state),
            }),
        })
    }

    /// Returns why the machine is unusable for another identity, or `None` if it is not.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.inner.state.lock().reason.clone()
    }

    /// Records a reason, unless there is one. It is on the disk when this returns, unless that
    /// fails, which is logged; the next call tries again. Blocks.
    pub(super) fn set(&self, reason: &str) {
        let mut state = self.inner.state.lock();
        if state.is_recorded {
            return;
        }
        let reason = state.reason.get_or_insert_with(|| reason.to_owned());
        let text = format!("{reason:<LENGTH$.LENGTH$}");
        let record = &self.inner.record;
        let written = record.write_all_at(text.as_bytes(), 0);
        match written.and_then(|()| record.sync_data()) {
            Ok(()) => state.is_recorded = true,
            Err(error) => tracing::error!(%error, "the taint of the machine is not recorded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reason_is_kept_by_the_state_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let taint = MachineTaint::open(&path).unwrap();
        assert_eq!(taint.reason(), None);
        assert_eq!(MachineTaint::open(&path).unwrap().reason(), None);
        taint.set("first");
        taint.clone().set("second");
        assert_eq!(taint.reason().as_deref(), Some("first"));
        let again = MachineTaint::open(&path).unwrap();
        assert_eq!(again.reason().as_deref(), Some("first"));
        assert_eq!(std::fs::read(&path).unwrap().len(), LENGTH);
    }

    #[test]
    fn creation_that_was_interrupted_is_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        std::fs::write(&path, "  ").unwrap();
        let taint = MachineTaint::open(&path).unwrap();
        assert_eq!(taint.reason(), None);
        taint.set("reason");
        let again = MachineTaint::open(&path).unwrap();
        assert_eq!(again.reason().as_deref(), Some("reason"));
    }
}
