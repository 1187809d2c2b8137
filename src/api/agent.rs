//! The agent's status, and requests that change its browser.

use chrono::{DateTime, SecondsFormat, Utc};
use deserr::Deserr;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{field::Flag, fs::CompressionLevel, start_url::StartUrl, viewport::Viewport};

/// The status of an agent. The agent responds before its browser is ready.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: String,
    /// The agent's version.
    pub version: String,
    /// Seconds since the agent started.
    pub uptime_seconds: u64,
    /// Milliseconds since the agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    pub chromium: ChromiumStatus,
    pub display: DisplayStatus,
    /// The memory of the machine. Absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// Shortages of the machine: a sentence each if less than 5 % of the disk of the state
    /// directory, or of the memory, is free.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// The memory of the machine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemoryStatus {
    pub total_bytes: u64,
    /// The part that programs can use without swapping.
    pub available_bytes: u64,
}

/// The state of the browser process.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChromiumStatus {
    /// `starting`, `running`, `restarting` or `stopped`.
    pub state: String,
    /// The time when Chromium entered this state.
    pub since: String,
    /// Number of restarts after Chromium ended unexpectedly.
    pub restarts: u64,
    /// Number of successful starts. Present while Chromium runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// Process id on the browser's host. Present while Chromium runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The user id that Chromium runs as.
    #[serde(default)]
    pub uid: u32,
    /// Chromium's own sandbox: `namespaces`, `setuid_helper` or `off`.
    #[serde(default)]
    pub sandbox: String,
    /// Why Chromium has no sandbox. Present if it is `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_reason: Option<String>,
    /// Version of Chromium. Present while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Reason of the restart. Present in the state `restarting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The error code of an archive whose profile a newer Chromium has used.
pub const NEWER_CHROMIUM: &str = "newer_chromium";

/// The state of the X display.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DisplayStatus {
    /// `up`, `down` or `headless`.
    pub state: String,
    /// The X display, such as `:0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Process id of the X server on the browser's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Size of the screen, or of the page area of a headless browser.
    pub viewport: Viewport,
}

/// The page to open in the active tab, and after every later start of Chromium.
#[derive(Clone, Debug, Deserr, ToSchema)]
pub struct StartUrlRequest {
    /// Absolute URL with the scheme http, https, about, data or file. At most 64 KiB,
    /// percent-encoded.
    #[schema(value_type = String)]
    pub url: StartUrl,
}

/// The operation succeeded.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// Always `true`.
    pub ok: bool,
}

/// Formats a time as RFC 3339 in UTC with milliseconds.
pub fn timestamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Options of a profile archive.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UserDataQuery {
    /// Archive the profile of the running browser. Chromium is suspended while the profile is
    /// copied, instead of closed and restarted.
    #[deserr(default)]
    #[param(value_type = Option<bool>, default = false)]
    pub live: Option<Flag>,
    /// Start Chromium again once the archive is made. With `false` it stays closed until a restart
    /// or another use of the profile: for a session that is about to end. Not with `live`.
    #[deserr(default)]
    #[param(value_type = Option<bool>, default = true)]
    pub restart: Option<Flag>,
    /// zstd level from 1 (fastest) to 19 (smallest), or `fastest` (1), `default` (3), `better` (9),
    /// `best` (19).
    #[deserr(default)]
    #[param(value_type = Option<String>, default = "3", pattern = "^([1-9]|1[0-9]|fastest|default|better|best)$")]
    pub compression_level: Option<CompressionLevel>,
}
