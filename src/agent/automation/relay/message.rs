//! Reading no more of a CDP message than the relay needs.

use std::{borrow::Cow, path::PathBuf};

use serde::Deserialize;

/// A message's head: which command or event, of which session.
#[derive(Debug, Default, PartialEq)]
pub struct Head<'a> {
    pub id: Option<i64>,
    pub method: Option<Cow<'a, str>>,
    pub session: Option<Cow<'a, str>>,
}

/// From here on it pays not to walk through the whole message (screenshots and bodies are megabytes of one string).
const LONG: usize = 2048;

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
    /// The head of a message of Chromium, whose order of members is known: `id` or `method` first, `sessionId` last.
    pub fn of_browser(text: &'a [u8]) -> Option<Head<'a>> {
        if text.len() > LONG
            && let Some(head) = Self::at_the_ends(text)
        {
            return Some(head);
        }
        Self::parse(text)
    }

    /// The head of any message, `None` where it is not a JSON object or has members of other types.
    pub fn parse(text: &'a [u8]) -> Option<Head<'a>> {
        if let Ok(head) = serde_json::from_slice::<Borrowed>(text) {
            return Some(Head {
                id: head.id,
                method: head.method.map(Cow::Borrowed),
                session: head.session.map(Cow::Borrowed),
            });
        }
        // Names with escapes in them cannot be borrowed.
        let head: Owned = serde_json::from_slice(text).ok()?;
        Some(Head {
            id: head.id,
            method: head.method.map(Cow::Owned),
            session: head.session.map(Cow::Owned),
        })
    }

    /// `{"id":7,…}` or `{"method":"X",…}`, and `…,"sessionId":"S"}` where there is one. A `sessionId` inside of `params` or
    /// `result` is followed by another brace, and inside a string its quotes would be escaped.
    fn at_the_ends(text: &'a [u8]) -> Option<Head<'a>> {
        let mut head = Head::default();
        if let Some(rest) = text.strip_prefix(b"{\"id\":") {
            let end = rest.iter().position(|b| !b.is_ascii_digit())?;
            head.id = Some(std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?);
        } else {
            let rest = text.strip_prefix(b"{\"method\":\"")?;
            head.method = Some(name(&rest[..rest.iter().position(|b| *b == b'"')?])?);
        }
        if let Some(rest) = text.strip_suffix(b"\"}") {
            let start = rest.iter().rposition(|b| *b == b'"')?;
            if !rest[..start].ends_with(b",\"sessionId\":") {
                return None;
            }
            head.session = Some(name(&rest[start + 1..])?);
        } else if !text.ends_with(b"}}") {
            return None;
        }
        Some(head)
    }
}

/// A plain name: no escapes.
fn name(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let plain = bytes
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    plain
        .then(|| std::str::from_utf8(bytes).ok().map(Cow::Borrowed))
        .flatten()
}

/// `Target.attachedToTarget`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    pub session_id: String,
    pub target_info: TargetInfo,
    #[serde(default)]
    pub waiting_for_debugger: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetInfo {
    pub target_id: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub opener_id: Option<String>,
}

/// `Target.detachedFromTarget`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Detached {
    pub session_id: String,
}

/// `Browser.downloadWillBegin` and `Browser.downloadProgress`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Download {
    pub guid: String,
    #[serde(default)]
    pub state: Option<String>,
    /// Where it was saved.
    #[serde(default)]
    pub file_path: Option<PathBuf>,
}

/// The parameters of `Browser.setDownloadBehavior` that the relay keeps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DownloadBehavior {
    #[serde(default)]
    pub behavior: String,
    #[serde(default)]
    pub browser_context_id: Option<String>,
    #[serde(default)]
    pub events_enabled: bool,
}

#[derive(Deserialize)]
struct Event<T> {
    params: T,
}

pub fn params<T: for<'de> Deserialize<'de>>(text: &[u8]) -> Option<T> {
    serde_json::from_slice::<Event<T>>(text)
        .ok()
        .map(|event| event.params)
}

/// The URL of the main frame in the reply to `Page.getFrameTree`, if it is a reply and not an error.
pub fn main_frame_url(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Reply {
        result: Result_,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result_ {
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
    fn both_ways_of_reading_agree() {
        let long = "x".repeat(LONG);
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
            assert_eq!(Head::at_the_ends(text.as_bytes()).as_ref(), Some(&expected));
            assert_eq!(Head::parse(text.as_bytes()).as_ref(), Some(&expected));
        }
    }

    #[test]
    fn an_unusual_order_is_left_to_the_parser() {
        let long = "x".repeat(LONG);
        let text = format!(r#"{{"sessionId":"S","id":3,"result":{{}},"more":"{long}"}}"#);
        assert_eq!(Head::at_the_ends(text.as_bytes()), None);
        assert_eq!(
            Head::of_browser(text.as_bytes()),
            Some(head(Some(3), None, Some("S")))
        );
    }

    #[test]
    fn escapes_and_garbage() {
        assert_eq!(
            Head::parse(br#"{"id":1,"method":"a\u002eb"}"#),
            Some(head(Some(1), Some("a.b"), None))
        );
        for garbage in ["", "null", "[]", "{", r#"{"id":"x"}"#] {
            assert_eq!(Head::parse(garbage.as_bytes()), None, "{garbage}");
        }
    }
}
