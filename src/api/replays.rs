//! Recordings of a browser's screen.

use std::ops::RangeInclusive;

use deserr::{DeserializeError, Deserr, IntoValue, Value, ValuePointerRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    field::{Fields, whole_number},
    ids::ReplayId,
    time::Timestamp,
};

/// Bounds of the frame rate, in frames per second.
pub const FRAMERATE: RangeInclusive<u32> = 1..=60;
/// Bounds of a recording's duration, in seconds: up to a day.
pub const MAX_DURATION: RangeInclusive<u32> = 1..=86_400;

/// Options of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
pub struct ReplayRequest {
    /// Frames per second, at most. A frame is recorded only if the screen has changed.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 60, default = 10)]
    pub framerate: Framerate,
    /// Seconds after which the recording ends. The default is a setting of the server.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 86400)]
    pub max_duration_in_seconds: Option<MaxDuration>,
    /// Record the audio as well.
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
    /// Absent while recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    pub status: ReplayStatus,
    /// Reason of the end. Absent while recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<ReplayEndReason>,
    /// Duration of the video in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Size of the video in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Page that plays the video. Its URL contains a token for this replay only. Set by the control
    /// plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_view_url: Option<String>,
}

impl Replay {
    /// Returns a replay that is recording.
    #[must_use]
    pub fn recording(replay_id: ReplayId, started_at: Timestamp) -> Self {
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

/// The status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    Recording,
    Finished,
}

/// The reason why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayEndReason {
    /// A client stopped the recording, or its browser ended.
    Stopped,
    /// The maximum duration was reached.
    MaxDuration,
    /// The maximum size was reached.
    MaxSize,
    /// The screen ended.
    ScreenEnded,
    /// The encoder failed.
    EncoderFailed,
    /// The disk was full.
    DiskFull,
    /// The agent died. The video lasts until then.
    AgentEnded,
    /// The video is lost: neither the browser's host nor the storage has it.
    Lost,
}
