//! Where browsers run. `local` starts their agents as child processes of this one.

mod agent_client;
mod agent_log;
mod leftovers;
mod local;
mod replay_client;

pub use agent_client::{AgentClient, AgentError};
pub use agent_log::TARGET as AGENT_LOG_TARGET;
pub use local::{Host, HostDown, Launch, LocalFleet, Slot, StartError};
pub use replay_client::{Fetched, ReplayClient};
