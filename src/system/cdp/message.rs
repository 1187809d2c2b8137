//! The head of a CDP message: what is read of every message without parsing the rest.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

/// The error codes of JSON-RPC, and those that Chromium uses.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const SERVER_ERROR: i32 = -32000;
pub(super) const SESSION_NOT_FOUND: i32 = -32001;

/// The head of a message: its command or event, and its session.
#[derive(Debug, Default, PartialEq)]
pub struct Head<'a> {
    pub id: Option<i64>,
    pub method: Option<Cow<'a, str>>,
    pub session: Option<Cow<'a, str>>,
}

/// The size above which a message without a session at its end is not parsed to find one.
const LONG_MESSAGE: usize = 2048;

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
    pub fn of_browser(text: &'a [u8]) -> Option<Head<'a>> {
        let is_long = text.len() > LONG_MESSAGE;
        Self::read_at_ends(text)
            .filter(|head| is_long || head.session.is_some())
            .or_else(|| Self::parse(text))
    }

    /// Returns the id of a reply from Chromium, of which the start is known.
    fn id_at_start(text: &[u8]) -> Option<i64> {
        let rest = text.strip_prefix(b"{\"id\":")?;
        let end = rest
            .iter()
            .position(|b| !b.is_ascii_digit() && *b != b'-')?;
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    }

    /// Returns the head of any message, or `None` if the message is no JSON object in UTF-8, or a
    /// member of the head is repeated or of another type.
    pub fn parse(text: &'a [u8]) -> Option<Head<'a>> {
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
        if let Some(id) = Self::id_at_start(text) {
            head.id = Some(id);
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

/// Returns a reply with an error, as Chromium writes it.
pub(super) fn error_reply(id: Option<i64>, code: i32, message: &str) -> Bytes {
    let error = json!({ "code": code, "message": message });
    let reply = match id {
        Some(id) => json!({ "id": id, "error": error }),
        None => json!({ "error": error }),
    };
    reply.to_string().into()
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
