//! The hosts that control has launched.

use super::Hosts;
use crate::api::ids::HostId;

impl Hosts {
    /// Returns whether this process has ended the session of a retiring host at its agent, with
    /// all that is to be fetched from it.
    pub fn has_settled(&self, id: &HostId) -> bool {
        self.inner.handles.is_retired(id)
    }
}
