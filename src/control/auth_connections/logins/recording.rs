//! Records the screen of a login.

use super::{Inner, actions::Action};
use crate::{
    api::ids::{BrowserId, ReplayId},
    control::{
        browsers::BrowserError,
        fleet::AgentError,
        replays::QuotaExceeded,
        store::{AuthFlowRow, StoreError},
    },
};

/// Why a login is not recorded. It goes on without.
#[derive(Debug, thiserror::Error)]
enum RecordingError {
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    #[error(transparent)]
    Browser(#[from] BrowserError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Action<'_> {
    /// Starts to record a new browser if the login is to be recorded.
    pub(super) async fn record(&self, browser: &BrowserId) -> Option<ReplayId> {
        if !self.row.record_session {
            return None;
        }
        match self.services.start_recording(self.row, browser).await {
            Ok(id) => Some(id),
            Err(error) => {
                tracing::warn!(flow = %self.row.id(), %error, "cannot record a login");
                None
            }
        }
    }
}

impl Inner {
    async fn start_recording(
        &self,
        row: &AuthFlowRow,
        browser: &BrowserId,
    ) -> Result<ReplayId, RecordingError> {
        let (replays, project) = (&self.parts.replays, &row.project_id);
        if let Some(exceeded) = replays.exceeded_quota(project).await? {
            return Err(exceeded.into());
        }
        let session = self
            .parts
            .browsers
            .session(project, browser.as_str())
            .await?;
        let replay = session.replay_client().start().await?;
        replays.record(project, browser, &replay).await?;
        session.replays_changed.notify_one();
        Ok(replay.replay_id)
    }
}
