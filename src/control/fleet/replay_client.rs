//! The recordings of one browser, as its agent has them.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::stream::BoxStream;
use secrecy::SecretString;

use super::agent_client::{Agent, AgentClient, AgentError};
use crate::api::{ids::ReplayId, replays::Replay};

/// Listing and removing wait for nothing.
const CALL_DEADLINE: Duration = Duration::from_secs(15);
/// A recording that is stopped is brought into its last form first.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// One agent where it listens now; when it is started again, it is another one.
#[derive(Clone)]
pub struct ReplayClient {
    client: AgentClient,
    address: SocketAddr,
    token: SecretString,
}

/// A recording on its way from its agent.
pub struct Fetched {
    pub size: u64,
    /// Ends with an error where it stands still or breaks off.
    pub content: BoxStream<'static, Result<Bytes, AgentError>>,
}

impl ReplayClient {
    pub fn new(client: AgentClient, address: SocketAddr, token: SecretString) -> ReplayClient {
        ReplayClient {
            client,
            address,
            token,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All it has: those under way, and those that have not been discarded.
    pub async fn replays(&self) -> Result<Vec<Replay>, AgentError> {
        self.client.replays(self.agent(), CALL_DEADLINE).await
    }

    /// Ends a recording; one that has ended stays as it is.
    pub async fn stop(&self, id: &ReplayId) -> Result<(), AgentError> {
        self.client
            .stop_replay(self.agent(), id, STOP_DEADLINE)
            .await
    }

    /// The file of one that has ended.
    pub async fn fetch(&self, id: &ReplayId) -> Result<Fetched, AgentError> {
        let (size, content) = self
            .client
            .fetch_replay(self.agent(), id, CALL_DEADLINE)
            .await?;
        Ok(Fetched { size, content })
    }

    /// Removes one that has ended; one that it has not is removed.
    pub async fn discard(&self, id: &ReplayId) -> Result<(), AgentError> {
        self.client
            .discard_replay(self.agent(), id, CALL_DEADLINE)
            .await
    }

    fn agent(&self) -> Agent<'_> {
        Agent {
            address: self.address,
            token: &self.token,
        }
    }
}
