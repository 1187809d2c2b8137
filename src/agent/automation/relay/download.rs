//! Downloads, as the relay of one worker handles them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    MAX_DOWNLOADS, Relay, RelayAction, Verdict, Violation,
    message::{DownloadBehavior, DownloadEvent, params},
};

/// The longest guid of a download in bytes. It becomes a file name.
const MAX_GUID_LEN: usize = 64;

/// Chromium's download setting.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DownloadSettings {
    /// The directory in which Chromium saves downloads.
    pub(crate) directory: String,
    /// A browser context without tabs, for whose events workers ask. Chromium reports the downloads
    /// of all contexts to a client that asks for those of any one, but resets a context's download
    /// directory when a client disconnects that has set it.
    pub(crate) events_context: Option<String>,
}

/// A download that Chromium has completed.
#[derive(Debug, PartialEq)]
pub(crate) struct CompletedDownload {
    pub(crate) guid: String,
    /// The path that Chromium reports.
    pub(crate) path: Option<PathBuf>,
    /// The event for the worker, sent after the script has the file.
    pub(crate) event: Bytes,
}

impl DownloadSettings {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        DownloadSettings {
            directory: directory.to_string_lossy().into_owned(),
            events_context: None,
        }
    }
}

impl Relay {
    /// Returns the worker's `Browser.setDownloadBehavior`, changed to the agent's directory.
    pub(super) fn on_set_download_behavior(
        &mut self,
        id: i64,
        session: Option<&str>,
        text: &[u8],
    ) -> Bytes {
        let requested = params::<DownloadBehavior>(text).unwrap_or_default();
        let mut params = self.download_behavior(&requested);
        params["eventsEnabled"] = requested.events_enabled.into();
        if requested.browser_context_id.is_none() {
            self.actions.push(RelayAction::RenewDownloadSetting);
        }
        let mut command =
            json!({ "id": id, "method": "Browser.setDownloadBehavior", "params": params });
        if let Some(session) = session {
            command["sessionId"] = Value::from(session);
        }
        command.to_string().into()
    }

    fn download_behavior(&self, requested: &DownloadBehavior) -> Value {
        let DownloadSettings {
            directory,
            events_context,
        } = &self.download_settings;
        match (&requested.browser_context_id, events_context) {
            (None, Some(context)) => json!({ "behavior": "default", "browserContextId": context }),
            (None, None) => json!({ "behavior": "allowAndName", "downloadPath": directory }),
            // A context of the script, which may deny downloads.
            (Some(context), _) => {
                let is_denied = requested.behavior == "deny";
                let behavior = if is_denied { "deny" } else { "allowAndName" };
                json!({
                    "behavior": behavior, "browserContextId": context, "downloadPath": directory,
                })
            }
        }
    }

    /// Handles the start of a download. Downloads that start while no script runs are ignored.
    pub(super) fn on_download_will_begin(&mut self, text: Bytes) -> Result<Verdict, Violation> {
        if self.is_idle() {
            return Ok(Verdict::Consumed);
        }
        let event = params::<DownloadEvent>(&text);
        let Some(event) = event.filter(|event| is_file_name(&event.guid)) else {
            return Ok(Verdict::Consumed);
        };
        if self.downloads.len() >= MAX_DOWNLOADS {
            return Err(Violation::Downloads);
        }
        self.downloads.insert(event.guid.clone());
        self.actions.push(RelayAction::DownloadStarted(event.guid));
        Ok(Verdict::Forward(text))
    }

    pub(super) fn on_download_progress(&mut self, text: Bytes) -> Verdict {
        let event = params::<DownloadEvent>(&text);
        let Some(event) = event.filter(|event| self.downloads.contains(&event.guid)) else {
            return Verdict::Consumed;
        };
        if event.state.as_deref() != Some("completed") {
            return Verdict::Forward(text);
        }
        let download = CompletedDownload {
            guid: event.guid,
            path: event.file_path,
            event: text,
        };
        self.actions.push(RelayAction::DownloadCompleted(download));
        Verdict::Consumed
    }
}

/// Returns the final event of a download that the script does not get, with the reason, which
/// Playwright reports.
pub(crate) fn canceled_download(guid: &str, reason: &str) -> Bytes {
    json!({
        "method": "Browser.downloadProgress",
        "params": {
            "guid": guid, "totalBytes": 0, "receivedBytes": 0, "state": "canceled",
            "reason": reason,
        },
    })
    .to_string()
    .into()
}

fn is_file_name(guid: &str) -> bool {
    (1..=MAX_GUID_LEN).contains(&guid.len())
        && guid
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
