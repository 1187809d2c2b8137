//! Downloads, as one worker's relay sees them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    MAX_DOWNLOADS, Out, Phase, Relay, Violation,
    message::{Download, DownloadBehavior, params},
};

/// The longest guid of a download: it becomes a file's name.
const MAX_GUID: usize = 64;

/// Where Chromium saves downloads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DownloadsPlace {
    pub folder: String,
    /// A browser context without tabs. Chromium reports all downloads to whoever asks for those of any context, but forgets a
    /// context's folder as soon as one who has set it goes: a worker asks for the events of this one.
    pub events_context: Option<String>,
}

/// A complete download.
#[derive(Debug, PartialEq)]
pub struct Downloaded {
    pub guid: String,
    /// Where Chromium says that it is.
    pub path: Option<PathBuf>,
    /// For the worker, once it has the file.
    pub event: Bytes,
}

impl DownloadsPlace {
    pub fn in_folder(folder: &Path) -> Self {
        DownloadsPlace {
            folder: folder.to_string_lossy().into_owned(),
            events_context: None,
        }
    }
}

impl Relay {
    /// A `Browser.setDownloadBehavior` of the worker's, as Chromium is to have it.
    pub(super) fn download_behavior(
        &mut self,
        id: i64,
        session: Option<&str>,
        text: &[u8],
    ) -> Bytes {
        let asked = params::<DownloadBehavior>(text);
        let own_context = asked
            .as_ref()
            .and_then(|asked| asked.browser_context_id.as_deref());
        let mut params = match (own_context, &self.place.events_context) {
            (None, Some(context)) => json!({ "behavior": "default", "browserContextId": context }),
            (None, None) => {
                json!({ "behavior": "allowAndName", "downloadPath": self.place.folder })
            }
            // One that the script has made, and whose downloads it may not want.
            (Some(context), _) => {
                let denied = asked.as_ref().is_some_and(|asked| asked.behavior == "deny");
                let behavior = if denied { "deny" } else { "allowAndName" };
                json!({ "behavior": behavior, "browserContextId": context, "downloadPath": self.place.folder })
            }
        };
        params["eventsEnabled"] = asked
            .as_ref()
            .is_some_and(|asked| asked.events_enabled)
            .into();
        if own_context.is_none() {
            self.out.push(Out::Downloads);
        }
        let mut command =
            json!({ "id": id, "method": "Browser.setDownloadBehavior", "params": params });
        if let Some(session) = session {
            command["sessionId"] = Value::from(session);
        }
        command.to_string().into()
    }

    /// Downloads that begin while no script runs are nobody's here.
    pub(super) fn download_began(&mut self, text: Bytes) -> Result<(), Violation> {
        if matches!(self.phase, Phase::Warm | Phase::Between) {
            return Ok(());
        }
        let Some(event) = params::<Download>(&text).filter(|event| is_file_name(&event.guid))
        else {
            return Ok(());
        };
        if self.downloads.len() >= MAX_DOWNLOADS {
            return Err(Violation::Downloads);
        }
        self.downloads.insert(event.guid.clone());
        self.out.push(Out::Download(event.guid));
        self.out.push(Out::ToWorker(text));
        Ok(())
    }

    pub(super) fn download_went_on(&mut self, text: Bytes) {
        let Some(event) =
            params::<Download>(&text).filter(|event| self.downloads.contains(&event.guid))
        else {
            return;
        };
        self.out
            .push(if event.state.as_deref() == Some("completed") {
                Out::Downloaded(Downloaded {
                    guid: event.guid,
                    path: event.file_path,
                    event: text,
                })
            } else {
                Out::ToWorker(text)
            });
    }
}

/// The end of a download that the script does not get, with the reason for Playwright to tell.
pub fn refused(guid: &str, reason: &str) -> Bytes {
    json!({
        "method": "Browser.downloadProgress",
        "params": {
            "guid": guid, "totalBytes": 0, "receivedBytes": 0, "state": "canceled", "reason": reason,
        },
    })
    .to_string()
    .into()
}

fn is_file_name(guid: &str) -> bool {
    (1..=MAX_GUID).contains(&guid.len())
        && guid
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
