//! Notifies those who wait for a change of a login flow in this process.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::ids::FlowId;

/// The waits for changes of flows. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct FlowChanges {
    waits: Arc<Mutex<HashMap<FlowId, watch::Sender<()>>>>,
}

impl FlowChanges {
    /// Returns a receiver that is notified of each later change of a flow. A notification is only a
    /// hint: nothing may have changed.
    #[must_use]
    pub fn subscribe(&self, id: &FlowId) -> watch::Receiver<()> {
        let mut waits = self.waits.lock();
        waits.retain(|_, sender| sender.receiver_count() > 0);
        let sender = waits
            .entry(id.clone())
            .or_insert_with(|| watch::Sender::new(()));
        sender.subscribe()
    }

    pub fn notify(&self, id: &FlowId) {
        if let Some(sender) = self.waits.lock().get(id) {
            sender.send_replace(());
        }
    }

    /// Notifies all who wait, because changes may have been missed.
    pub fn notify_all(&self) {
        for sender in self.waits.lock().values() {
            sender.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_reaches_the_waits_for_the_flow() {
        let changes = FlowChanges::default();
        let (id, other) = (FlowId::generate(), FlowId::generate());
        let mut receivers = [changes.subscribe(&id), changes.subscribe(&id)];
        let unrelated = changes.subscribe(&other);
        changes.notify(&id);
        for receiver in &mut receivers {
            assert!(receiver.has_changed().unwrap());
            receiver.mark_unchanged();
        }
        assert!(!unrelated.has_changed().unwrap());
        changes.notify_all();
        assert!(receivers[0].has_changed().unwrap() && unrelated.has_changed().unwrap());
    }

    #[test]
    fn flow_without_waits_takes_no_memory() {
        let changes = FlowChanges::default();
        for _ in 0..10 {
            drop(changes.subscribe(&FlowId::generate()));
        }
        let _kept = changes.subscribe(&FlowId::generate());
        assert_eq!(changes.waits.lock().len(), 1);
    }
}
