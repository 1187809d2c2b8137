//! Downloads, as the relay of one worker handles them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    MAX_DOWNLOADS, Relay, RelayAction, Verdict, Violation,
    command::success_reply,
    message::{DownloadBehavior, DownloadEvent, created_context, params},
};

/// The longest guid of a download in bytes. It becomes a file name.
const MAX_GUID_LEN: usize = 64;
const SET_BEHAVIOR: &str = "Browser.setDownloadBehavior";
const DENY: &str = "deny";

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
    pub(super) fn on_set_download_behavior(&mut self, id: i64, text: &[u8]) -> Bytes {
        let requested = self.requested_behavior(text);
        let mut params = match (&requested.browser_context_id, self.events_only()) {
            (Some(context), _) => self.behavior_in(context, &requested.behavior),
            (None, Some(events_only)) => events_only,
            (None, None) => {
                let directory = &self.download_settings.directory;
                json!({ "behavior": "allowAndName", "downloadPath": directory })
            }
        };
        params["eventsEnabled"] = requested.events_enabled.into();
        json!({ "id": id, "method": SET_BEHAVIOR, "params": params })
            .to_string()
            .into()
    }

    /// Handles `Browser.setDownloadBehavior` of a session. Chromium resets what a session has set
    /// when it detaches, so the worker's connection sets it, and the session gets the events.
    pub(super) fn on_session_download_behavior(
        &mut self,
        id: i64,
        session: &str,
        text: &[u8],
    ) -> Verdict {
        let requested = self.requested_behavior(text);
        if let Some(context) = &requested.browser_context_id {
            let mut params = self.behavior_in(context, &requested.behavior);
            params["eventsEnabled"] = true.into();
            self.send_browser_command(SET_BEHAVIOR, params);
        }
        let Some(mut params) = self.events_only() else {
            self.to_worker(success_reply(id, session, json!({})));
            return Verdict::Consumed;
        };
        params["eventsEnabled"] = requested.events_enabled.into();
        let command =
            json!({ "id": id, "method": SET_BEHAVIOR, "params": params, "sessionId": session });
        Verdict::Forward(command.to_string().into())
    }

    /// Handles `Page.setDownloadBehavior`: the tab's context keeps the agent's directory.
    pub(super) fn on_page_download_behavior(&mut self, id: i64, session: &str) -> Verdict {
        self.actions.push(RelayAction::RenewDownloadSetting);
        self.to_worker(success_reply(id, session, json!({})));
        Verdict::Consumed
    }

    /// Handles the reply to the worker's `Target.createBrowserContext`. Downloads of the context
    /// are denied until the worker sets their behavior: by default Chromium would save them in its
    /// user's directory.
    pub(super) fn on_context_created(&mut self, reply: &[u8]) {
        if let Some(context) = created_context(reply) {
            let mut params = self.behavior_in(&context, DENY);
            params["eventsEnabled"] = true.into();
            self.send_browser_command(SET_BEHAVIOR, params);
            self.contexts.insert(context);
        }
    }

    /// Returns the parameters of the worker's command, without a context that is not its own.
    /// Without one they concern the default context, whose setting is the agent's.
    fn requested_behavior(&mut self, text: &[u8]) -> DownloadBehavior {
        let mut requested = params::<DownloadBehavior>(text).unwrap_or_default();
        let context = requested.browser_context_id.take();
        requested.browser_context_id = context.filter(|context| self.contexts.contains(context));
        if requested.browser_context_id.is_none() {
            self.actions.push(RelayAction::RenewDownloadSetting);
        }
        requested
    }

    /// Returns the parameters that change no setting but those of events.
    fn events_only(&self) -> Option<Value> {
        let context = self.download_settings.events_context.as_ref()?;
        Some(json!({ "behavior": "default", "browserContextId": context }))
    }

    /// Returns the parameters for a context of the script, which may deny downloads.
    fn behavior_in(&self, context: &str, requested: &str) -> Value {
        let behavior = if requested == DENY {
            DENY
        } else {
            "allowAndName"
        };
        let directory = &self.download_settings.directory;
        json!({ "behavior": behavior, "browserContextId": context, "downloadPath": directory })
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
