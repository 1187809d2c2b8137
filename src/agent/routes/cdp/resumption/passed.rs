//! Connections that the next program of the agent continues.

use serde::{Deserialize, Serialize};

use super::log::Log;
use crate::{
    api::devtools::ResumeId,
    system::cdp::multiplexer::{CdpReceiver, ClientId},
};

/// A connection whose task has ended, and whose session in Chromium goes on.
pub struct StoppedConnection {
    pub(super) id: ResumeId,
    /// The number of the last message that the client has sent.
    pub(super) received: u64,
    pub(super) log: Log,
    pub(super) receiver: CdpReceiver,
}

impl StoppedConnection {
    pub(in crate::agent) fn client(&self) -> ClientId {
        self.receiver.client()
    }

    /// Returns what the next program needs. The multiplexer must have passed its clients before:
    /// its last messages are retained with those before. Returns `None` if there were too many.
    pub(in crate::agent) fn pass(mut self) -> Option<PassedConnection> {
        while let Some(message) = self.receiver.next_ready() {
            self.log.push(message);
        }
        let is_complete = !self.receiver.too_slow().is_cancelled();
        is_complete.then(|| PassedConnection {
            client: self.receiver.client(),
            id: self.id,
            received: self.received,
            log: self.log,
        })
    }
}

/// A connection for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub struct PassedConnection {
    pub(super) client: ClientId,
    pub(super) id: ResumeId,
    pub(super) received: u64,
    pub(super) log: Log,
}
