//! Fetching recordings from an agent that lives.

use super::{Replays, TransferError, end_of, key, state::Event, state::State};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        replays::{Replay, ReplayStatus},
    },
    control::{fleet::Recorder, store::ReplayEnd},
};

impl Replays {
    /// Takes down what the agent has; says whether something of it is to be fetched.
    pub async fn look(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &Recorder,
    ) -> Result<bool, TransferError> {
        let listed = recorder.replays().await?;
        for replay in &listed {
            self.note(project, browser, replay).await?;
        }
        Ok(!listed.is_empty())
    }

    /// Fetches what has ended and has the agent remove it; says whether nothing is left to wait for. What cannot be fetched stays where
    /// it is, and is told in the log.
    pub async fn collect(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &Recorder,
    ) -> Result<bool, TransferError> {
        let _turn = self.inner.turns.take(browser.clone()).await;
        let mut settled = true;
        for replay in recorder.replays().await? {
            match self.collect_one(project, browser, recorder, &replay).await {
                Ok(done) => settled &= done,
                Err(error) => {
                    tracing::warn!(%browser, replay = %replay.replay_id, %error, "a replay cannot be fetched");
                    settled = false;
                }
            }
        }
        Ok(settled && !self.has_open(browser).await?)
    }

    /// Ends what is being recorded, and fetches all.
    pub async fn settle(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &Recorder,
    ) -> Result<(), TransferError> {
        for replay in recorder.replays().await? {
            if replay.status == ReplayStatus::Recording
                && let Err(error) = recorder.stop(&replay.replay_id).await
            {
                // It ends with its agent, too.
                tracing::warn!(%browser, replay = %replay.replay_id, %error, "a recording cannot be stopped");
            }
        }
        self.collect(project, browser, recorder).await?;
        Ok(())
    }

    /// Says whether nothing of it is with the agent any more.
    async fn collect_one(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &Recorder,
        replay: &Replay,
    ) -> Result<bool, TransferError> {
        self.note(project, browser, replay).await?;
        if replay.status == ReplayStatus::Recording {
            return Ok(false);
        }
        let id = &replay.replay_id;
        if replay.size_bytes == Some(0) {
            tracing::warn!(%browser, replay = %id, reason = ?replay.end_reason, "nothing was recorded");
            self.miss(id).await?;
            recorder.discard(id).await?;
            return Ok(true);
        }
        let found = self.inner.store.find_replay(id).await?;
        if found.is_none_or(|row| row.state != State::Kept) {
            let size = self.fetch(recorder, replay).await?;
            let end = ReplayEnd {
                size_bytes: Some(size),
                ..end_of(replay)
            };
            self.happen(id, Event::Fetched, &end).await?;
            tracing::info!(%browser, replay = %id, size, "a replay is kept");
        }
        recorder.discard(id).await?;
        Ok(true)
    }

    async fn fetch(&self, recorder: &Recorder, replay: &Replay) -> Result<u64, TransferError> {
        let _place = self.inner.transfers.acquire().await;
        let id = &replay.replay_id;
        let fetched = recorder.fetch(id).await?;
        let came = self.inner.blobs.put(&key(id), fetched.content).await?;
        if came == fetched.size {
            return Ok(came);
        }
        self.inner.blobs.remove(&key(id)).await?;
        Err(TransferError::Short {
            size: fetched.size,
            came,
        })
    }
}
