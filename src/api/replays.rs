//! Recordings of a browser's screen on the wire.

use std::ops::RangeInclusive;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    field::{Fields, whole_number},
    ids::ReplayId,
    time::Timestamp,
};

/// Frames per second.
pub const FRAMERATE: RangeInclusive<u32> = 1..=60;
/// Seconds a recording may last: up to a day.
pub const MAX_DURATION: RangeInclusive<u32> = 1..=86_400;

/// How the screen is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
pub struct ReplayRequest {
    /// Frames per second, at most: there is one when something on the screen has changed.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 60, default = 10)]
    pub framerate: Framerate,
    /// When it ends by itself; the agent's setting where nothing is said.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86400)]
    pub max_duration_in_seconds: Option<MaxDuration>,
    /// Whether what is heard is recorded as well.
    #[schema(value_type = Option<bool>, default = false)]
    pub record_audio: bool,
}

/// Frames per second, within [`FRAMERATE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framerate(pub u32);

/// Seconds, within [`MAX_DURATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxDuration(pub u32);

impl Default for Framerate {
    fn default() -> Self {
        Self(10)
    }
}

impl<E: DeserializeError> Deserr<E> for ReplayRequest {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        let mut fields = Fields::<_, E>::new(value, location)?;
        let framerate: Option<Framerate> = fields.optional("framerate");
        let max_duration_in_seconds = fields.optional("max_duration_in_seconds");
        let record_audio: Option<bool> = fields.optional("record_audio");
        fields.finish(Some(Self {
            framerate: framerate.unwrap_or_default(),
            max_duration_in_seconds,
            record_audio: record_audio.unwrap_or_default(),
        }))
    }
}

impl<E: DeserializeError> Deserr<E> for Framerate {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, FRAMERATE).map(Self)
    }
}

impl<E: DeserializeError> Deserr<E> for MaxDuration {
    fn deserialize_from_value<V: IntoValue>(
        value: Value<V>,
        location: ValuePointerRef,
    ) -> Result<Self, E> {
        whole_number(value, location, MAX_DURATION).map(Self)
    }
}

/// A recording of a browser's screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    pub replay_id: ReplayId,
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    pub status: ReplayStatus,
    /// Why it ended; absent while it is recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<ReplayEndReason>,
    /// What it shows, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// A page that plays it, opened by a token in the address that opens this replay and nothing else. Told by control, not by an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_view_url: Option<String>,
}

impl Replay {
    /// One that has just begun.
    #[must_use]
    pub fn begun(replay_id: ReplayId, started_at: Timestamp) -> Self {
        Self {
            replay_id,
            started_at,
            finished_at: None,
            status: ReplayStatus::Recording,
            end_reason: None,
            duration_ms: None,
            size_bytes: None,
            replay_view_url: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    Recording,
    Finished,
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayEndReason {
    /// A client stopped it, or its browser ended.
    Stopped,
    /// It was as long as it might become.
    MaxDuration,
    /// It was as large as it might become.
    MaxSize,
    /// There was no screen any more.
    ScreenEnded,
    /// The encoder died.
    EncoderFailed,
    /// There was no room for more.
    DiskFull,
    /// The agent died; it plays until then.
    AgentEnded,
    /// Nothing of it is left: neither its browser's host nor what it was kept in has it any more.
    Lost,
}
