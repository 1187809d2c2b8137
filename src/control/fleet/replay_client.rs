//! A client for the recordings of one agent.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::stream::BoxStream;
use secrecy::SecretString;

use super::agent_client::{AgentAccess, AgentClient, AgentEndpoint, AgentError};
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
    address: SocketAddr,
    token: SecretString,
    generation: u64,
}

/// The file of a recording as the agent sends it.
pub struct RecordingDownload {
    pub size: u64,
    /// Ends with an error if the transfer stalls or breaks off.
    pub content: BoxStream<'static, Result<Bytes, AgentError>>,
}

impl ReplayClient {
    pub fn new(
        client: AgentClient,
        address: SocketAddr,
        token: SecretString,
        generation: u64,
    ) -> ReplayClient {
        ReplayClient {
            client,
            address,
            token,
            generation,
        }
    }

    /// Returns the address of the agent.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lists the recordings in progress and the finished ones that were not discarded.
    pub async fn list(&self) -> Result<Vec<Replay>, AgentError> {
        self.client.replays(self.agent(), CALL_TIMEOUT).await
    }

    /// Stops a recording. Does nothing if it is finished.
    pub async fn stop(&self, id: &ReplayId) -> Result<(), AgentError> {
        self.client
            .stop_replay(self.agent(), id, STOP_TIMEOUT)
            .await
    }

    /// Downloads the file of a finished recording.
    pub async fn fetch(&self, id: &ReplayId) -> Result<RecordingDownload, AgentError> {
        let (size, content) = self
            .client
            .fetch_replay(self.agent(), id, CALL_TIMEOUT)
            .await?;
        Ok(RecordingDownload { size, content })
    }

    /// Removes a finished recording from the agent. Does nothing if it does not exist.
    pub async fn discard(&self, id: &ReplayId) -> Result<(), AgentError> {
        self.client
            .discard_replay(self.agent(), id, CALL_TIMEOUT)
            .await
    }

    fn agent(&self) -> AgentEndpoint<'_> {
        AgentEndpoint {
            address: self.address,
            access: AgentAccess::Token(&self.token),
            generation: Some(self.generation),
        }
    }
}
