//! Recordings of a browser's screen on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ids::ReplayId, time::Timestamp};

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
