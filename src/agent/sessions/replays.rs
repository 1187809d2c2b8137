//! The recordings of ended sessions.

use std::io;

use tokio::task::spawn_blocking;

use super::{EndedReplayError, FIRST_GENERATION, Sessions};
use crate::{
    agent::replays::{EndedReplays, ReplayError, StoredReplays},
    api::{ids::ReplayId, replays::Replay, session::EndedSession},
};

impl Sessions {
    /// Returns the recordings of all ended sessions.
    pub(in crate::agent) fn replays(&self) -> &EndedReplays {
        &self.inner.replays
    }

    /// Returns the ended sessions that have recordings, in the order in which they ended.
    pub fn with_replays(&self) -> Vec<EndedSession> {
        let replays = self.replays();
        let current = self.generation();
        let generations = replays.generations().into_iter();
        // The recordings of a session that is about to end are there already.
        let ended = generations.filter(|generation| *generation < current);
        ended
            .map(|generation| EndedSession {
                generation,
                replays: replays.list(generation),
            })
            .collect()
    }

    /// Returns the recordings of an ended session.
    ///
    /// # Errors
    /// If no session with this generation has ended.
    pub fn list_replays(&self, generation: u64) -> Result<Vec<Replay>, EndedReplayError> {
        self.require_ended(generation)?;
        Ok(self.replays().list(generation))
    }

    /// Returns the recordings of an ended session, to open one of them.
    ///
    /// # Errors
    /// If no session with this generation has ended, or it has none.
    pub fn replays_of(&self, generation: u64) -> Result<StoredReplays, EndedReplayError> {
        self.require_ended(generation)?;
        Ok(self.replays().of(generation)?)
    }

    /// Deletes a recording of an ended session. Blocks.
    ///
    /// # Errors
    /// If no session with this generation has ended, or it has no finished recording with that id.
    pub fn delete_replay(&self, generation: u64, id: &ReplayId) -> Result<(), EndedReplayError> {
        self.require_ended(generation)?;
        Ok(self.replays().delete(generation, id)?)
    }

    /// Deletes the recordings of all ended sessions, once those that were cut off are finished.
    ///
    /// # Errors
    /// If one cannot be deleted, or finished.
    pub(in crate::agent) async fn delete_all_replays(&self) -> Result<(), ReplayError> {
        for generation in self.replays().generations() {
            if let Ok(stored) = self.replays().of(generation) {
                stored.wait_finished().await;
            }
            let replays = self.replays().clone();
            let deleted = spawn_blocking(move || replays.delete_all(generation)).await;
            deleted.map_err(|panic| ReplayError::Io(io::Error::other(panic)))??;
        }
        Ok(())
    }

    fn require_ended(&self, generation: u64) -> Result<(), EndedReplayError> {
        match (FIRST_GENERATION..self.generation()).contains(&generation) {
            true => Ok(()),
            false => Err(EndedReplayError::NotEnded(generation)),
        }
    }

    fn generation(&self) -> u64 {
        self.current().agent.session.generation
    }
}
