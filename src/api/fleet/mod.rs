//! The fleet of hosts that register themselves.

mod hosts;
mod join_tokens;

pub use hosts::{
    AgentVersion, BootId, EngineName, FleetHost, HeartbeatAnswer, HostAddress, HostCapabilities,
    HostHeartbeat, HostPhase, HostRegistration, MaxViewport, RegisterHost, RequestPem,
    ScreenPixels, SessionNumber, UNKNOWN_HOST,
};
pub use join_tokens::{CreateJoinToken, JoinToken, JoinTokenWithSecret, TokenUses};
