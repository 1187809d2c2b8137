//! Fetches recordings from a running agent.

use super::{Replays, TransferError, reported_end, state::Event, state::State};
use crate::{
    api::{
        ids::{BrowserId, ProjectId},
        replays::{Replay, ReplayStatus},
    },
    control::{
        fleet::{RecordingDownload, ReplayClient},
        store::ReplayEnd,
    },
};

impl Replays {
    /// Updates the rows to what the agent reports. Returns whether it has recordings.
    pub async fn refresh(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        client: &ReplayClient,
    ) -> Result<bool, TransferError> {
        let replays = client.list().await?;
        let mut first_error = None;
        for replay in &replays {
            if let Err(error) = self.record(project, browser, replay).await {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(!replays.is_empty()),
        }
    }

    /// Fetches finished recordings and discards them at the agent. Returns whether none remain to
    /// be fetched. A recording that cannot be fetched stays at the agent, and is logged.
    pub async fn collect(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        client: &ReplayClient,
    ) -> Result<bool, TransferError> {
        let mut is_done = true;
        for replay in client.list().await? {
            match self.collect_one(project, browser, client, &replay).await {
                Ok(is_collected) => is_done &= is_collected,
                Err(error) => {
                    tracing::warn!(%browser, replay = %replay.replay_id, %error, "cannot fetch replay");
                    is_done = false;
                }
            }
        }
        Ok(is_done && !self.has_open(browser).await?)
    }

    /// Stops all recordings in progress and fetches all files.
    pub async fn settle(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        client: &ReplayClient,
    ) -> Result<(), TransferError> {
        for replay in client.list().await? {
            if replay.status == ReplayStatus::Recording
                && let Err(error) = client.stop(&replay.replay_id).await
            {
                // The recording ends with its agent, too.
                tracing::warn!(%browser, replay = %replay.replay_id, %error, "cannot stop recording");
            }
        }
        self.collect(project, browser, client).await?;
        Ok(())
    }

    /// Fetches all recordings of a session that has ended, and discards them at the agent. What the
    /// agent does not have is lost. Returns false if some are still being finished.
    pub async fn collect_ended(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        client: &ReplayClient,
    ) -> Result<bool, TransferError> {
        let mut is_done = true;
        let listed = match client.list().await {
            // The agent does not know the session.
            Err(error) if error.is_not_found() => Vec::new(),
            listed => listed?,
        };
        for replay in listed {
            is_done &= match self.collect_one(project, browser, client, &replay).await {
                // Its file was deleted, and there is no other.
                Err(TransferError::Agent(error)) if error.is_not_found() => {
                    let id = &replay.replay_id;
                    tracing::warn!(%browser, replay = %id, "the agent has lost a recording");
                    self.mark_lost(id).await?;
                    client.discard(id).await?;
                    true
                }
                collected => collected?,
            };
        }
        if is_done {
            self.settle_missing(browser).await?;
        }
        Ok(is_done)
    }

    /// Fetches one recording if it is finished. Returns whether the agent no longer has it.
    async fn collect_one(
        &self,
        project: &ProjectId,
        browser: &BrowserId,
        client: &ReplayClient,
        replay: &Replay,
    ) -> Result<bool, TransferError> {
        if !self.record(project, browser, replay).await? {
            return Ok(true);
        }
        if replay.status == ReplayStatus::Recording {
            return Ok(false);
        }
        let id = &replay.replay_id;
        let _permit = self.inner.transfers.acquire().await;
        let _lock = self.inner.locks.lock(id.clone()).await;
        let found = self.inner.store.find_replay(id).await?;
        if found.is_some_and(|row| row.state != State::Stored) {
            self.fetch(browser, client, replay).await?;
        }
        client.discard(id).await?;
        Ok(true)
    }

    async fn fetch(
        &self,
        browser: &BrowserId,
        client: &ReplayClient,
        replay: &Replay,
    ) -> Result<(), TransferError> {
        let id = &replay.replay_id;
        if replay.size_bytes == Some(0) {
            tracing::warn!(%browser, replay = %id, reason = ?replay.end_reason, "empty recording");
            return Ok(self.mark_lost(id).await?);
        }
        let RecordingDownload { size, content } = client.fetch(id).await?;
        self.store_file(id, size, content).await?;
        let end = ReplayEnd {
            size_bytes: Some(size),
            ..reported_end(replay)
        };
        self.apply(id, Event::Fetched, |_| end.clone()).await?;
        tracing::info!(%browser, replay = %id, size, "replay stored");
        Ok(())
    }
}
