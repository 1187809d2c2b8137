//! The client processes that can be looked up by id.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{MAX_EXITED, MAX_EXITED_BYTES, handle::Process};
use crate::api::ids::ProcessId;

/// The running processes and a bounded number of exited ones.
#[derive(Debug, Default)]
pub(super) struct ProcessRegistry {
    by_id: HashMap<ProcessId, Arc<Process>>,
    /// The exited processes and the bytes of their output, oldest first.
    exited: VecDeque<(ProcessId, usize)>,
    exited_bytes: usize,
}

impl ProcessRegistry {
    pub(super) fn insert(&mut self, process: Arc<Process>) {
        self.by_id.insert(process.id, process);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn get(&self, id: &ProcessId) -> Option<Arc<Process>> {
        self.by_id.get(id).cloned()
    }

    /// Marks a process as exited and evicts the oldest exited ones above the limits. The newest
    /// one always stays, whatever the size of its output.
    pub(super) fn set_exited(&mut self, id: ProcessId, output_bytes: usize) {
        self.exited.push_back((id, output_bytes));
        self.exited_bytes += output_bytes;
        while self.exited.len() > MAX_EXITED
            || (self.exited_bytes > MAX_EXITED_BYTES && self.exited.len() > 1)
        {
            let Some((oldest, output_bytes)) = self.exited.pop_front() else {
                break;
            };
            self.exited_bytes -= output_bytes;
            self.by_id.remove(&oldest);
        }
    }

    /// Removes a process, unless it was evicted already.
    pub(super) fn remove(&mut self, id: ProcessId) {
        self.by_id.remove(&id);
        let index = self.exited.iter().position(|(exited, _)| *exited == id);
        if let Some((_, output_bytes)) = index.and_then(|index| self.exited.remove(index)) {
            self.exited_bytes -= output_bytes;
        }
    }
}
