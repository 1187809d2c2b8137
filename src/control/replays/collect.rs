//! Fetching recordings from an agent that lives.

use super::{Replays, TransferError, end_of, state::Event, state::State};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        replays::{Replay, ReplayStatus},
    },
    control::{
        fleet::{Fetched, ReplayClient},
        store::ReplayEnd,
    },
};

impl Replays {
    /// Takes down what the agent has; says whether something of it is to be fetched.
    pub async fn look(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &ReplayClient,
    ) -> Result<bool, TransferError> {
        let listed = recorder.replays().await?;
        let mut failed = None;
        for replay in &listed {
            if let Err(error) = self.note(project, browser, replay).await {
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(!listed.is_empty()),
        }
    }

    /// Fetches what has ended and has the agent remove it; says whether nothing is left to wait for. What cannot be fetched stays where
    /// it is, and is told in the log.
    pub async fn collect(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        recorder: &ReplayClient,
    ) -> Result<bool, TransferError> {
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
        recorder: &ReplayClient,
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
        recorder: &ReplayClient,
        replay: &Replay,
    ) -> Result<bool, TransferError> {
        if !self.note(project, browser, replay).await? {
            return Ok(true);
        }
        if replay.status == ReplayStatus::Recording {
            return Ok(false);
        }
        let id = &replay.replay_id;
        let _place = self.inner.transfers.acquire().await;
        let _turn = self.inner.turns.take(id.clone()).await;
        let found = self.inner.store.find_replay(id).await?;
        if found.is_some_and(|row| row.state != State::Kept) {
            self.fetch(browser, recorder, replay).await?;
        }
        recorder.discard(id).await?;
        Ok(true)
    }

    async fn fetch(
        &self,
        browser: &BrowserId,
        recorder: &ReplayClient,
        replay: &Replay,
    ) -> Result<(), TransferError> {
        let id = &replay.replay_id;
        if replay.size_bytes == Some(0) {
            tracing::warn!(%browser, replay = %id, reason = ?replay.end_reason, "nothing was recorded");
            return Ok(self.miss(id).await?);
        }
        let Fetched { size, content } = recorder.fetch(id).await?;
        self.bring_in(id, size, content).await?;
        let end = ReplayEnd {
            size_bytes: Some(size),
            ..end_of(replay)
        };
        self.apply(id, Event::Fetched, |_| end.clone()).await?;
        tracing::info!(%browser, replay = %id, size, "a replay is kept");
        Ok(())
    }
}
