//! A client for the recordings of one agent.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;

use super::agent_client::{AgentClient, AgentEndpoint, AgentError};
use crate::api::{ids::ReplayId, replays::Replay};

/// The timeout of listing and discarding recordings, and of the head of a download.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of stopping a recording. The agent finalizes the file before it responds.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A client for the recordings of one session of the agent at one address. A restarted agent needs
/// a new client.
#[derive(Clone)]
pub struct ReplayClient {
    client: AgentClient,
    agent: AgentEndpoint,
    /// The path of the session's recordings.
    path: String,
}

/// The file of a recording as the agent sends it.
pub struct RecordingDownload {
    pub size: u64,
    /// Ends with an error if the transfer stalls or breaks off.
    pub content: BoxStream<'static, Result<Bytes, AgentError>>,
}

impl ReplayClient {
    /// Returns a client for the session that the endpoint names, while that lasts.
    pub fn new(client: AgentClient, agent: AgentEndpoint) -> ReplayClient {
        ReplayClient {
            client,
            agent,
            path: "/replays".to_owned(),
        }
    }

    /// Returns a client for a session that has ended. Its recordings are finished.
    pub fn of_ended(client: AgentClient, agent: AgentEndpoint, generation: u64) -> ReplayClient {
        ReplayClient {
            client,
            agent,
            path: format!("/sessions/{generation}/replays"),
        }
    }

    /// Lists the recordings in progress and the finished ones that were not discarded.
    pub async fn list(&self) -> Result<Vec<Replay>, AgentError> {
        let listed = self.client.replays(&self.agent, &self.path, CALL_TIMEOUT);
        listed.await
    }

    /// Starts a recording with the agent's defaults.
    pub async fn start(&self) -> Result<Replay, AgentError> {
        let body = Bytes::from_static(b"{}");
        self.client
            .post(&self.agent, &self.path, body, CALL_TIMEOUT)
            .await
    }

    /// Stops a recording. Does nothing if it is finished.
    pub async fn stop(&self, id: &ReplayId) -> Result<(), AgentError> {
        self.client.stop_replay(&self.agent, id, STOP_TIMEOUT).await
    }

    /// Downloads the file of a finished recording.
    pub async fn fetch(&self, id: &ReplayId) -> Result<RecordingDownload, AgentError> {
        let path = self.path_of(id);
        let fetched = self.client.fetch_replay(&self.agent, &path, CALL_TIMEOUT);
        let (size, content) = fetched.await?;
        Ok(RecordingDownload { size, content })
    }

    /// Removes a finished recording from the agent. Does nothing if it does not exist.
    pub async fn discard(&self, id: &ReplayId) -> Result<(), AgentError> {
        let path = self.path_of(id);
        let discarded = self.client.discard_replay(&self.agent, &path, CALL_TIMEOUT);
        discarded.await
    }

    fn path_of(&self, id: &ReplayId) -> String {
        format!("{}/{id}", self.path)
    }
}
