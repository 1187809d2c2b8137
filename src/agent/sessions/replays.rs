//! The recordings of ended sessions.

use super::{EndedReplayError, FIRST_GENERATION, Sessions};
use crate::{
    agent::replays::{EndedReplays, StoredReplays},
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
