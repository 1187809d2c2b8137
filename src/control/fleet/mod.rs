//! Where browsers run. `local` starts their agents as child processes of this one.

mod agent_client;
mod leftovers;
mod local;

pub use agent_client::AgentError;
pub use local::{Host, HostDown, Launch, LocalFleet, Slot, StartError};
