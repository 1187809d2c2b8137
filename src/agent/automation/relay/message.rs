//! Parsing the parts of a CDP message that the relay needs.

use std::{borrow::Cow, path::PathBuf};

use serde::Deserialize;

/// The head of a message: its command or event, and its session.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Head<'a> {
    pub(super) id: Option<i64>,
    pub(super) method: Option<Cow<'a, str>>,
    pub(super) session: Option<Cow<'a, str>>,
}

/// The size above which the head is read at the ends of a message instead of parsing all of it.
/// (Screenshots and bodies are megabytes of one string.)
pub(super) const LONG_MESSAGE: usize = 2048;

#[derive(Deserialize)]
struct Borrowed<'a> {
    id: Option<i64>,
    method: Option<&'a str>,
    #[serde(rename = "sessionId")]
    session: Option<&'a str>,
}

#[derive(Deserialize)]
struct Owned {
    id: Option<i64>,
    method: Option<String>,
    #[serde(rename = "sessionId")]
    session: Option<String>,
}

impl<'a> Head<'a> {
    /// Returns the head of a message from Chromium, whose order of members is known: `id` or
    /// `method` first, `sessionId` last.
    pub(super) fn of_browser(text: &'a [u8]) -> Option<Head<'a>> {
        if text.len() > LONG_MESSAGE
            && let Some(head) = Self::read_at_ends(text)
        {
            return Some(head);
        }
        Self::parse(text)
    }

    /// Returns the head of any message, or `None` if the message is no JSON object in UTF-8, or a
    /// member of the head is repeated or of another type.
    pub(super) fn parse(text: &'a [u8]) -> Option<Head<'a>> {
        let text = std::str::from_utf8(text).ok()?;
        // An array would be read as the members in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return None;
        }
        if let Ok(head) = serde_json::from_str::<Borrowed>(text) {
            return Some(Head {
                id: head.id,
                method: head.method.map(Cow::Borrowed),
                session: head.session.map(Cow::Borrowed),
            });
        }
        // Strings with escapes cannot be borrowed.
        let head: Owned = serde_json::from_str(text).ok()?;
        Some(Head {
            id: head.id,
            method: head.method.map(Cow::Owned),
            session: head.session.map(Cow::Owned),
        })
    }

    /// Reads `{"id":7,…}` or `{"method":"X",…}`, and `…,"sessionId":"S"}` if there is one. A
    /// `sessionId` inside `params` or `result` is followed by another brace, and inside a string
    /// its quotes would be escaped.
    fn read_at_ends(text: &'a [u8]) -> Option<Head<'a>> {
        let mut head = Head::default();
        if let Some(rest) = text.strip_prefix(b"{\"id\":") {
            let end = rest.iter().position(|b| !b.is_ascii_digit())?;
            head.id = Some(std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?);
        } else {
            let rest = text.strip_prefix(b"{\"method\":\"")?;
            head.method = Some(plain_name(&rest[..rest.iter().position(|b| *b == b'"')?])?);
        }
        if let Some(rest) = text.strip_suffix(b"\"}") {
            let start = rest.iter().rposition(|b| *b == b'"')?;
            if !rest[..start].ends_with(b",\"sessionId\":") {
                return None;
            }
            head.session = Some(plain_name(&rest[start + 1..])?);
        } else if !text.ends_with(b"}}") {
            return None;
        }
        Some(head)
    }
}

/// Returns a name that contains no escapes.
fn plain_name(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let plain = bytes
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    plain
        .then(|| std::str::from_utf8(bytes).ok().map(Cow::Borrowed))
        .flatten()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn head(id: Option<i64>, method: Option<&str>, session: Option<&str>) -> Head<'static> {
        Head {
            id,
            method: method.map(|s| Cow::Owned(s.to_owned())),
            session: session.map(|s| Cow::Owned(s.to_owned())),
        }
    }

    #[test]
    fn head_read_at_ends_equals_parsed_head() {
        let long = "x".repeat(LONG_MESSAGE);
        let fake = r#"\",\"sessionId\":\"FAKE\"}"#;
        for (text, expected) in [
            (
                format!(r#"{{"id":7,"result":{{"data":"{long}"}},"sessionId":"AB12"}}"#),
                head(Some(7), None, Some("AB12")),
            ),
            (
                format!(r#"{{"id":7,"result":{{"data":"{long}"}}}}"#),
                head(Some(7), None, None),
            ),
            (
                format!(
                    r#"{{"method":"Target.attachedToTarget","params":{{"x":"{long}","sessionId":"AB"}}}}"#
                ),
                head(None, Some("Target.attachedToTarget"), None),
            ),
            (
                format!(r#"{{"id":8,"error":{{"code":1,"message":"{long}{fake}"}}}}"#),
                head(Some(8), None, None),
            ),
        ] {
            assert_eq!(
                Head::read_at_ends(text.as_bytes()).as_ref(),
                Some(&expected)
            );
            assert_eq!(Head::parse(text.as_bytes()).as_ref(), Some(&expected));
        }
    }

    #[test]
    fn head_is_parsed_when_member_order_is_unusual() {
        let long = "x".repeat(LONG_MESSAGE);
        let text = format!(r#"{{"sessionId":"S","id":3,"result":{{}},"more":"{long}"}}"#);
        assert_eq!(Head::read_at_ends(text.as_bytes()), None);
        assert_eq!(
            Head::of_browser(text.as_bytes()),
            Some(head(Some(3), None, Some("S")))
        );
    }

    #[test]
    fn parse_accepts_escapes_and_rejects_garbage() {
        assert_eq!(
            Head::parse(br#"{"id":1,"method":"a\u002eb"}"#),
            Some(head(Some(1), Some("a.b"), None))
        );
        for garbage in [
            "",
            "null",
            "[]",
            r#"[1,"Page.enable",null]"#,
            "{",
            r#"{"id":"x"}"#,
        ] {
            assert_eq!(Head::parse(garbage.as_bytes()), None, "{garbage}");
        }
    }
}
