//! The hosts that register themselves, such as VMs that boot an agent.
//!
//! - [`JoinTokens`]: the secrets with which unknown hosts register.
//! - [`RegisteredHosts`]: registration, heartbeats, and the hosts themselves.
//! - [`HostExpiry`]: declares hosts lost that have missed their heartbeats.
//! - [`HostDemand`]: the browsers that got no host.
//! - [`HostLaunches`]: launches hosts for them with a command, and destroys them.
//! - [`RegisteredFleetConfig`]: the settings.
//!
//! ```text
//! agent ── join token, certificate request ──▶ control: host id, certificate
//!   │
//!   └──── heartbeat with a token of its key ──▶ row of the host ──▶ alive
//!                                                    └── none in time ──▶ lost
//! ```
//!
//! A host is known by its public key: what proves the key is the host, whatever its address or the
//! id that it presents. Only the row of the host decides whether it is alive.

mod demand;
mod expiry;
mod heartbeat;
mod hosts;
mod join_tokens;
mod launch;
mod registration;
mod settings;

pub use demand::HostDemand;
pub use expiry::HostExpiry;
pub use hosts::{FleetError, RegisteredHosts};
pub use join_tokens::{FORMAT as JOIN_TOKEN_FORMAT, JoinTokenError, JoinTokens};
pub use launch::{
    EngineId, HostLaunches, LaunchConfig, LaunchSettings,
    state::{Event as LaunchEvent, LaunchLife, State as LaunchState},
    warn_of_unmanaged_launches,
};
pub use registration::{Registered, Registrant};
pub(super) use registration::{certificate_name, random_part};
pub use settings::{AuthorityError, RegisteredFleetConfig, RegisteredFleetSettings};
