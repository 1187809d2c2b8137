//! Machines that are started from a snapshot: the requests of their engine, and those of the
//! machine to its agent.

use std::{net::SocketAddr, ops::RangeInclusive};

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, Datelike, Utc};
use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{field, fleet::HostAddress, secret_text::SecretText};

/// The years that a clock can be set to.
const YEARS: RangeInclusive<i32> = 2020..=2099;
/// The random bytes of an engine.
const ENTROPY_BYTES: RangeInclusive<usize> = 32..=256;

/// The join token of a machine. It cannot be printed.
pub struct MachineJoinToken(SecretText<16, 1024>);

impl MachineJoinToken {
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    fn parse(text: String) -> Result<Self, String> {
        let token = SecretText::parse(text)?;
        match token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(token)),
            false => Err("must have printable ASCII characters without spaces only".to_owned()),
        }
    }
}

impl<E: DeserializeError> Deserr<E> for MachineJoinToken {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, Self::parse)
    }
}

/// The things that a machine does not know after it was resumed.
#[derive(Deserr, ToSchema)]
pub struct Resume {
    /// The present time in RFC 3339 format, from 2020 to 2099.
    #[schema(value_type = String, format = DateTime)]
    pub time: PresentTime,
    /// 32 to 256 random bytes in base64, which no other machine gets. Required unless the
    /// engine gives the machine a source of random numbers (virtio-rng).
    #[deserr(default)]
    #[schema(value_type = Option<String>, min_length = 44, max_length = 344)]
    pub entropy: Option<Entropy>,
    /// Join token for this machine alone.
    #[schema(value_type = String, min_length = 16, max_length = 1024)]
    pub join_token: MachineJoinToken,
    /// IP address and port at which control reaches the agent. By default the machine's own address
    /// on the way to control.
    #[deserr(default)]
    #[schema(value_type = Option<String>)]
    pub advertise: Option<HostAddress>,
}

/// A machine that is ready for a snapshot.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Prepared {
    /// Always `true`: another result is an error.
    pub prepared: bool,
}

/// A machine that was resumed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Resumed {
    /// The id of the machine's run, with which it registers.
    pub boot_id: String,
}

/// The present time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentTime(pub DateTime<Utc>);

impl PresentTime {
    fn parse(text: &str) -> Result<Self, String> {
        let time = DateTime::parse_from_rfc3339(text)
            .map_err(|_| "must be an RFC 3339 time such as 2030-01-31T12:00:00Z".to_owned())?
            .to_utc();
        match YEARS.contains(&time.year()) {
            true => Ok(Self(time)),
            false => Err(format!("must be from {} to {}", YEARS.start(), YEARS.end())),
        }
    }
}

/// Random bytes of the engine. They are not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Entropy(Vec<u8>);

impl Entropy {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = BASE64_STANDARD.decode(text).ok();
        let bytes = bytes.filter(|bytes| ENTROPY_BYTES.contains(&bytes.len()));
        bytes.map(Self).ok_or_else(|| {
            let (min, max) = (ENTROPY_BYTES.start(), ENTROPY_BYTES.end());
            format!("must be {min} to {max} bytes in base64")
        })
    }
}

impl<E: DeserializeError> Deserr<E> for PresentTime {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| Self::parse(&text))
    }
}

impl<E: DeserializeError> Deserr<E> for Entropy {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        field::from_text(value, location, |text| Self::parse(&text))
    }
}

/// A request of the machine's hooks to the agent: one line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(tag = "hook", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentHook {
    /// Whether a snapshot can be taken.
    Prepare,
    /// The machine was resumed.
    Resumed {
        join_token: String,
        advertise: Option<SocketAddr>,
    },
}

/// The agent's answer to a hook: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum AgentHookAnswer {
    Prepared,
    Resumed {
        boot_id: String,
    },
    /// The browser is not ready yet.
    NotReady,
    /// The agent registers already, or is not that of a template.
    Refused {
        reason: String,
    },
    Failed {
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_token_can_be_sent_in_a_header() {
        let valid = MachineJoinToken::parse("berth_join_0123456".to_owned());
        assert_eq!(valid.ok().unwrap().expose(), "berth_join_0123456");
        for invalid in [
            "too-short",
            "a token with spaces in it",
            "a-token-with\n-a-line",
        ] {
            let error = MachineJoinToken::parse(invalid.to_owned()).err().unwrap();
            assert!(!error.contains(invalid), "{error}");
        }
    }

    #[test]
    fn time_is_in_this_century_and_entropy_long_enough() {
        let time = PresentTime::parse("2026-11-27T10:00:00.5+01:00").unwrap();
        assert_eq!(time.0.timestamp_millis(), 1_795_770_000_500);
        for invalid in ["", "1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "10:00"] {
            assert!(PresentTime::parse(invalid).is_err(), "{invalid}");
        }
        let entropy = |length| BASE64_STANDARD.encode(vec![10; length]);
        assert_eq!(Entropy::parse(&entropy(32)).unwrap().bytes(), [10; 32]);
        for invalid in [entropy(0), entropy(31), entropy(257), "!".repeat(44)] {
            let error = Entropy::parse(&invalid).err().unwrap();
            assert_eq!(error, "must be 32 to 256 bytes in base64");
        }
    }
}
