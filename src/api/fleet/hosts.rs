//! Hosts that register themselves: their registration, heartbeats and records.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    field,
    ids::{BrowserId, HostId},
    time::Timestamp,
};

/// The code of a 401 for a host that the server does not know (any more). It has to register with a
/// join token. Any other 401 does not say so, such as that of a proxy, or for a wrong clock.
pub const UNKNOWN_HOST: &str = "unknown_host";

/// The registration of a host, by its agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, ToSchema)]
pub struct RegisterHost {
    /// IP address and port at which the server reaches the agent, such as `10.0.0.7:10001`. Names,
    /// and unspecified, multicast and link-local addresses, are rejected.
    #[schema(value_type = String)]
    pub address: HostAddress,
    /// Id of the machine's run since it was booted: 1–64 characters of `A-Z a-z 0-9 -`.
    #[schema(value_type = String, min_length = 1, max_length = 64)]
    pub boot_id: BootId,
    /// PEM-encoded certificate signing request of a P-256 key, up to 4096 bytes. Names in it are
    /// ignored.
    #[schema(value_type = String, max_length = 4096)]
    pub certificate_request: RequestPem,
    pub capabilities: HostCapabilities,
    /// Version of the agent: 1–64 printable ASCII characters.
    #[schema(value_type = String, min_length = 1, max_length = 64)]
    pub version: AgentVersion,
}

/// The properties of a host.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, Serialize, Deserialize, ToSchema)]
pub struct HostCapabilities {
    /// Whether browsers can have a display.
    pub display: bool,
    pub max_viewport: MaxViewport,
    /// Whether browsers run in kiosk mode.
    #[serde(default)]
    #[deserr(default)]
    pub kiosk_mode: bool,
    /// Browser engine: 1–32 characters of `a-z 0-9 _ -`, such as `chromium`.
    #[schema(value_type = String, min_length = 1, max_length = 32)]
    pub engine: EngineName,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
}

/// The largest screen, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserr, Serialize, Deserialize, ToSchema)]
pub struct MaxViewport {
    #[schema(value_type = u32, minimum = 1, maximum = 32_767)]
    pub width: ScreenPixels,
    #[schema(value_type = u32, minimum = 1, maximum = 32_767)]
    pub height: ScreenPixels,
}

/// The identity of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostRegistration {
    pub host_id: HostId,
    /// PEM-encoded certificate of the host's key, for the TLS server of the agent.
    pub certificate: String,
    /// The host renews its certificate before this time, by registering again.
    pub certificate_expires_at: Timestamp,
    /// PEM-encoded certificate of the authority that has issued it, and that issues the server's
    /// own certificate as a client of agents.
    pub ca_certificate: String,
    /// Seconds between two heartbeats.
    pub heartbeat_interval_seconds: u64,
}

/// A report of a host that it is alive.
#[derive(Debug, Clone, PartialEq, Eq, Deserr, ToSchema)]
pub struct HostHeartbeat {
    /// Id of the machine's run since it was booted. Another one than before means that the machine
    /// was rebooted and its session is lost.
    #[schema(value_type = String, min_length = 1, max_length = 64)]
    pub boot_id: BootId,
    /// Number of the agent's current session, at least 1.
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub generation: SessionNumber,
    /// Whether the host can take a session: its browser responds, and its agent is not to be
    /// started again.
    pub ready: bool,
    /// Whether the agent takes no further session, and ends when none uses it, to be started again.
    #[deserr(default)]
    #[schema(default = false)]
    pub restarting: Option<bool>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    pub state: HostPhase,
    /// Whether the host gets no further session.
    pub draining: bool,
    /// Seconds until the next heartbeat.
    pub heartbeat_interval_seconds: u64,
}

/// A host that has registered itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetHost {
    pub id: HostId,
    pub state: HostPhase,
    /// Whether the host gets no further session.
    pub draining: bool,
    /// Whether the host gets no session until its agent has started again.
    pub restarting: bool,
    /// The browser that runs on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<BrowserId>,
    /// The number of the host's sessions. It grows with each.
    pub generation: u64,
    pub address: String,
    /// Id of the machine's run since it was booted.
    pub boot_id: String,
    /// Version of the agent.
    pub version: String,
    /// The labels of the join token that the host has registered with.
    pub labels: BTreeMap<String, String>,
    pub capabilities: HostCapabilities,
    pub last_heartbeat_at: Timestamp,
    pub created_at: Timestamp,
    /// The time when the state last changed.
    pub state_changed_at: Timestamp,
}

/// The phase of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostPhase {
    /// Its browser does not respond yet, or its agent is about to start again.
    Starting,
    /// The host can take a session.
    Ready,
    /// The host runs a session.
    Leased,
    /// A session has ended, and the agent replaces its browser.
    Recycling,
    /// The host has missed its heartbeats. It may return.
    Lost,
    /// The host gets no further session and ends.
    Retiring,
    /// The host has ended.
    Gone,
}

/// The address of an agent, to which the server may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress(SocketAddr);

impl HostAddress {
    #[must_use]
    pub fn get(self) -> SocketAddr {
        self.0
    }
}

impl TryFrom<SocketAddr> for HostAddress {
    type Error = String;

    fn try_from(address: SocketAddr) -> Result<Self, String> {
        let ip = address.ip().to_canonical();
        let is_link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        if ip.is_unspecified() || ip.is_multicast() || is_link_local {
            return Err(
                "must not be an unspecified, multicast, broadcast or link-local address".to_owned(),
            );
        }
        match address.port() {
            0 => Err("must have a port from 1 to 65535".to_owned()),
            port => Ok(HostAddress(SocketAddr::new(ip, port))),
        }
    }
}

impl FromStr for HostAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address: SocketAddr = text
            .parse()
            .map_err(|_| "must be an IP address and a port such as 10.0.0.7:10001".to_owned())?;
        address.try_into()
    }
}

impl<E: DeserializeError> Deserr<E> for HostAddress {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| text.parse())
    }
}

/// Returns a text of 1 to `max` bytes that are all allowed, or `message`.
fn checked(
    text: &str,
    max: usize,
    allowed: fn(u8) -> bool,
    message: &str,
) -> Result<String, String> {
    match (1..=max).contains(&text.len()) && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err(message.to_owned()),
    }
}

/// The id of a machine's run since it was booted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootId(String);

impl BootId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BootId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let message = "must have 1 to 64 characters of A-Z a-z 0-9 -";
        checked(text, 64, allowed, message).map(BootId)
    }
}

impl<E: DeserializeError> Deserr<E> for BootId {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| text.parse())
    }
}

/// A PEM-encoded certificate signing request, whose content is not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPem(String);

impl RequestPem {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for RequestPem {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let message = "must have 1 to 4096 ASCII characters";
            checked(&text, 4096, |byte| byte.is_ascii(), message).map(RequestPem)
        })
    }
}

/// The version of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentVersion(String);

impl AgentVersion {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<E: DeserializeError> Deserr<E> for AgentVersion {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| {
            let message = "must have 1 to 64 printable ASCII characters without spaces";
            checked(&text, 64, |byte| byte.is_ascii_graphic(), message).map(AgentVersion)
        })
    }
}

/// The name of a browser engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineName(String);

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
        let message = "must have 1 to 32 characters of a-z 0-9 _ -";
        checked(text, 32, allowed, message).map(EngineName)
    }
}

impl<E: DeserializeError> Deserr<E> for EngineName {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| text.parse())
    }
}

/// A width or height of a screen in pixels: 1–32767, the most that an X server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenPixels(u32);

impl ScreenPixels {
    pub const MAX: ScreenPixels = ScreenPixels(32_767);

    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for ScreenPixels {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::whole_number(value, location, 1..=Self::MAX.0).map(ScreenPixels)
    }
}

/// The number of an agent's session: at least 1, and exact in every JSON decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionNumber(u64);

impl SessionNumber {
    const MAX: u64 = (1 << 53) - 1;

    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl<E: DeserializeError> Deserr<E> for SessionNumber {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        match value {
            Value::Integer(number @ 1..=Self::MAX) => Ok(SessionNumber(number)),
            _ => {
                let message = format!("must be a whole number from 1 to {}", Self::MAX);
                Err(field::add(None, message, location))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_one_that_control_may_connect_to() {
        for (text, expected) in [
            ("10.0.0.7:10001", "10.0.0.7:10001"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[fd00::7]:65535", "[fd00::7]:65535"),
            ("[::ffff:10.0.0.7]:443", "10.0.0.7:443"),
        ] {
            let address: HostAddress = text.parse().unwrap();
            assert_eq!(address.get().to_string(), expected);
        }
        for refused in [
            "",
            "10.0.0.7",
            "10.0.0.7:0",
            "10.0.0.7:65536",
            "agent.example:443",
            "http://10.0.0.7:80",
            "user@10.0.0.7:80",
            "10.0.0.7:80/path",
            " 10.0.0.7:80",
            "0.0.0.0:80",
            "[::]:80",
            "255.255.255.255:80",
            "224.0.0.1:80",
            "[ff02::1]:80",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[fe80::1]:80",
            "[fe80::1%2]:80",
        ] {
            assert!(refused.parse::<HostAddress>().is_err(), "{refused}");
        }
    }
}
