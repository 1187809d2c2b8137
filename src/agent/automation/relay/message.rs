//! Parsing the parts of a CDP message that the relay needs.

use std::path::PathBuf;

use serde::Deserialize;

/// The parameters of `Target.attachedToTarget`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttachedToTarget {
    pub(super) session_id: String,
    pub(super) target_info: TargetInfo,
    #[serde(default)]
    pub(super) waiting_for_debugger: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TargetInfo {
    pub(super) target_id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) opener_id: Option<String>,
}

/// The parameters of `Target.detachedFromTarget`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DetachedFromTarget {
    pub(super) session_id: String,
}

/// The parameters of `Browser.downloadWillBegin` and `Browser.downloadProgress`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DownloadEvent {
    pub(super) guid: String,
    #[serde(default)]
    pub(super) state: Option<String>,
    /// The path of the saved file.
    #[serde(default)]
    pub(super) file_path: Option<PathBuf>,
}

/// The parameters of `Browser.setDownloadBehavior` that the relay uses.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DownloadBehavior {
    #[serde(default)]
    pub(super) behavior: String,
    #[serde(default)]
    pub(super) browser_context_id: Option<String>,
    #[serde(default)]
    pub(super) events_enabled: bool,
}

#[derive(Deserialize)]
struct Event<T> {
    params: T,
}

/// Parses the parameters of a message.
pub(super) fn params<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Option<T> {
    serde_json::from_slice::<Event<T>>(text)
        .ok()
        .map(|event| event.params)
}

/// Parses the parameters of a command, which may have none.
pub(super) fn params_or_default<T>(text: &[u8]) -> Result<T, serde_json::Error>
where
    T: Default + for<'de> Deserialize<'de>,
{
    #[derive(Deserialize)]
    struct Command<T> {
        params: Option<T>,
    }
    serde_json::from_slice::<Command<T>>(text).map(|command| command.params.unwrap_or_default())
}

/// Returns the id from a reply to `Target.createBrowserContext`, or `None` for an error.
pub(super) fn created_context(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Reply {
        result: CreatedContext,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreatedContext {
        browser_context_id: String,
    }
    serde_json::from_slice::<Reply>(text)
        .ok()
        .map(|reply| reply.result.browser_context_id)
}

/// Returns the URL of the main frame from a reply to `Page.getFrameTree`, or `None` for an error.
pub(super) fn main_frame_url(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Reply {
        result: FrameTreeResult,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct FrameTreeResult {
        frame_tree: FrameTree,
    }
    #[derive(Deserialize)]
    struct FrameTree {
        frame: Frame,
    }
    #[derive(Deserialize)]
    struct Frame {
        url: String,
    }
    serde_json::from_slice::<Reply>(text)
        .ok()
        .map(|reply| reply.result.frame_tree.frame.url)
}

/// Returns the URL from a `Page.frameNavigated` of the main frame, or `None` for another frame.
pub(super) fn navigated_main_frame(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct FrameNavigated {
        frame: Frame,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Frame {
        parent_id: Option<String>,
        url: String,
    }
    params::<FrameNavigated>(text)
        .filter(|event| event.frame.parent_id.is_none())
        .map(|event| event.frame.url)
}
