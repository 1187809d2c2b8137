//! The messages of the subprotocol `berth.resume.v1`: text in all cases.
//!
//! | message | meaning |
//! |---|---|
//! | `{"id": …, "received": n, …}` | the server's first message on each WebSocket |
//! | `n JSON` | the DevTools message with the number n, from 1 in each direction |
//! | `ack n` | all messages up to the number n have arrived |

use bytes::Bytes;
use serde::Serialize;

use crate::api::devtools::ResumeId;

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientFrame<'a> {
    Message(u64, &'a str),
    Ack(u64),
}

impl<'a> ClientFrame<'a> {
    /// Parses a message. Returns `None` if it is invalid.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (first, rest) = text.split_once(' ')?;
        match first {
            "ack" => Some(ClientFrame::Ack(number(rest)?)),
            first => {
                let number = number(first).filter(|number| *number > 0)?;
                Some(ClientFrame::Message(number, rest))
            }
        }
    }
}

/// Parses a number. Signs and leading zeros are invalid.
fn number(text: &str) -> Option<u64> {
    let is_canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    (is_canonical || text == "0").then(|| text.parse().ok())?
}

/// The server's first message on a WebSocket.
#[derive(Serialize)]
struct Greeting {
    id: String,
    /// The number of the last message that the server has received.
    received: u64,
    /// The time for which the server keeps the connection after its WebSocket was lost.
    window_seconds: u64,
}

pub(super) fn greeting(id: ResumeId, received: u64, window_seconds: u64) -> String {
    let greeting = Greeting {
        id: id.to_string(),
        received,
        window_seconds,
    };
    serde_json::to_string(&greeting).unwrap_or_default()
}

pub(super) fn ack(number: u64) -> String {
    format!("ack {number}")
}

/// Returns a DevTools message with its number.
pub(super) fn numbered(number: u64, message: &Bytes) -> Bytes {
    let number = number.to_string();
    let mut text = Vec::with_capacity(number.len() + 1 + message.len());
    text.extend_from_slice(number.as_bytes());
    text.push(b' ');
    text.extend_from_slice(message);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_parsed() {
        let parsed = ClientFrame::parse(r#"12 {"id": 1}"#);
        assert_eq!(parsed, Some(ClientFrame::Message(12, r#"{"id": 1}"#)));
        assert_eq!(ClientFrame::parse("ack 0"), Some(ClientFrame::Ack(0)));
        for text in [
            "",
            "1",
            "{}",
            "0 {}",
            "-1 {}",
            "+1 {}",
            "01 {}",
            " {}",
            "ack",
            "ack x",
            "ack 1 ",
            "1\t{}",
            "18446744073709551616 {}",
        ] {
            assert_eq!(ClientFrame::parse(text), None, "{text}");
        }
    }
}
