//! What an agent tells of itself, and takes to change its browser.

use chrono::{DateTime, SecondsFormat, Utc};
use deserr::Deserr;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{field::Flag, fs::CompressionLevel, start_url::StartUrl, viewport::Viewport};

/// What is up. The agent answers before its browser does.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` as long as the agent answers.
    pub status: String,
    /// The agent's version.
    pub version: String,
    pub uptime_seconds: u64,
    pub chromium: ChromiumStatus,
    pub display: DisplayStatus,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChromiumStatus {
    /// `starting`, `running`, `restarting` or `stopped`.
    pub state: String,
    /// When this state began.
    pub since: String,
    /// How many times Chromium ended and was started again.
    pub restarts: u64,
    /// Counts the starts that came to an answer; present while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it is being restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DisplayStatus {
    /// `up`, `down` or `headless`.
    pub state: String,
    /// The X display, such as `:0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub viewport: Viewport,
}

/// A page to open in the tab in front, and after every later start of Chromium.
#[derive(Clone, Debug, Deserr, ToSchema)]
pub struct StartUrlRequest {
    /// http, https, about, data or file.
    #[schema(value_type = String)]
    pub url: StartUrl,
}

/// It is done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct Done {
    pub ok: bool,
}

/// RFC 3339, UTC, milliseconds.
pub fn timestamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// How the profile is archived.
#[derive(Debug, Deserr, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UserDataQuery {
    /// Whether Chromium goes on: it is stopped for as long as the profile takes to be copied, and not closed.
    #[deserr(default)]
    #[param(value_type = Option<bool>, default = false)]
    pub live: Option<Flag>,
    /// 1 (fastest) to 19 (smallest); or `fastest` (1), `default` (3), `better` (9), `best` (19).
    #[deserr(default)]
    #[param(value_type = Option<String>, default = "3", pattern = "^([1-9]|1[0-9]|fastest|default|better|best)$")]
    pub compression_level: Option<CompressionLevel>,
}
