//! The hosts that browsers run on.
//!
//! - [`Host`]: one agent with its display and Chromium, as the services of control use it. It does
//!   not know which fleet runs it.
//! - [`Lease`]: a session's right to a host.
//! - [`LocalFleet`]: runs agents as child processes on this machine.
//! - [`registered`]: the hosts that register themselves, such as VMs.
//! - [`AgentClient`]: control's own requests to agents. [`ReplayClient`] is the part of it that
//!   fetches recordings.
//!
//! A fleet owns the process or machine of a host and publishes its state through a
//! [`HostController`]; a [`Host`] watches that state.
//!
//! ```text
//! LocalFleet ──▶ HostController ── HostState ──▶ Host ──▶ Lease ──▶ browsers, proxy, replays
//!                      ▲                          │
//!                      └───── stop request ───────┘
//!
//! HostState:  Listening(address) ◀──▶ Restarting
//!                     └──────▶ Gone ◀──────┘
//! ```

mod agent_client;
mod host;
mod host_connector;
mod lease;
mod local;
pub mod registered;
mod replay_client;

pub use agent_client::{AgentAccess, AgentClient, AgentEndpoint, AgentError, GENERATION};
pub use host::{Host, HostController, HostError, HostState};
pub use lease::Lease;
pub use local::{
    AGENT_LOG_TARGET, HostPermit, HostStartError, LaunchOptions, LocalFleet, SessionRecord,
};
pub use replay_client::{RecordingDownload, ReplayClient};
