//! The hosts that browsers run on.
//!
//! - [`Host`]: one agent with its display and Chromium, as the services of control use it, whatever
//!   fleet it belongs to.
//! - [`Lease`]: a session's right to a host.
//! - [`LocalFleet`]: runs agents as child processes on this machine.
//! - [`registered`]: the hosts that register themselves, such as VMs.
//! - [`AgentClient`]: control's own requests to agents. [`ReplayClient`] is the part of it that
//!   fetches recordings, [`AgentFill`] the request to fill a page, [`LoginInspection`] and
//!   [`LoginAct`] those about a login page.
//!
//! The supervisor of a process, or the row of a registered host, decides about the state of a host,
//! which a [`HostController`] publishes; a [`Host`] watches it.
//!
//! ```text
//! LocalFleet, row of a host ──▶ HostController ── HostState ──▶ Host ──▶ Lease ──▶ browsers, proxy
//!                                     ▲                          │
//!                                     └── stop request (local) ──┘
//!
//! HostState:  Listening(address) ◀──▶ Restarting
//!                     └──────▶ Gone ◀──────┘
//! ```

mod agent_client;
mod agent_connections;
mod fill_client;
mod host;
mod host_connector;
mod lease;
mod local;
mod login_client;
pub mod registered;
mod replay_client;

pub use agent_client::{AgentAccess, AgentClient, AgentEndpoint, AgentError, GENERATION};
pub(super) use agent_connections::{agent_client_builder, local_connector};
pub use fill_client::AgentFill;
pub use host::{Host, HostController, HostError, HostState};
pub(super) use host_connector::{HostConnector, host_connector, host_server_name};
pub use lease::{BrowserRun, Lease};
pub use local::{
    AGENT_LOG_TARGET, HostPermit, HostStartError, LaunchOptions, LocalFleet, SessionRecord,
};
pub use login_client::{LoginAct, LoginInspection};
pub use replay_client::{RecordingDownload, ReplayClient};
