//! The codes and reasons with which servers close WebSockets.
//!
//! `docs/websockets.md` lists the codes for clients.

use axum::extract::ws::CloseFrame;

use crate::shutdown::Shutdown;

/// Bytes of the longest close reason: a control frame carries 125 bytes, two of them the code.
const MAX_REASON: usize = 123;

/// The code of a Close frame. Codes from 4000 are the contract's own and have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum CloseCode {
    /// The process has exited or the tab is closed: nothing remains to be transferred.
    Done = 1000,
    /// The server is shutting down.
    Stopping = 1001,
    /// The client has sent a message that the server does not accept.
    InvalidMessage = 1008,
    /// The connection to what the WebSocket leads to is lost.
    Failed = 1011,
    /// Chromium has restarted. Its tabs are gone.
    BrowserRestarted = 4001,
    /// The browser was deleted, or its time is over.
    SessionEnded = 4004,
    /// The client does not read what it is sent, or does not answer.
    TooSlow = 4008,
    /// The client has resumed its connection with another WebSocket.
    TakenOver = 4009,
    /// The connection that the client would resume has ended.
    NotResumable = 4012,
}

impl CloseCode {
    fn name(self) -> Option<&'static str> {
        match self {
            CloseCode::Done
            | CloseCode::Stopping
            | CloseCode::InvalidMessage
            | CloseCode::Failed => None,
            CloseCode::BrowserRestarted => Some("browser_restarted"),
            CloseCode::SessionEnded => Some("session_ended"),
            CloseCode::TooSlow => Some("too_slow"),
            CloseCode::TakenOver => Some("taken_over"),
            CloseCode::NotResumable => Some("not_resumable"),
        }
    }
}

/// The code and text of a Close frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseReason {
    code: CloseCode,
    /// At most [`MAX_REASON`] bytes.
    text: String,
}

impl CloseReason {
    /// Returns the reason of a server that is shutting down, or of a session that has ended.
    pub fn of_shutdown(shutdown: &Shutdown) -> Self {
        match shutdown.is_discarded() {
            true => Self::new(CloseCode::SessionEnded, "the session has ended"),
            false => Self::new(CloseCode::Stopping, "the server is shutting down"),
        }
    }

    /// Returns the reason with its text cut to what a Close frame can carry. The text begins with
    /// the name of the code, if that has one.
    pub fn new(code: CloseCode, text: impl Into<String>) -> Self {
        let text = text.into();
        let mut text = match code.name() {
            Some(name) => format!("{name}: {text}"),
            None => text,
        };
        text.truncate(text.floor_char_boundary(MAX_REASON));
        Self { code, text }
    }

    pub(super) fn code(&self) -> u16 {
        self.code as u16
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl From<CloseReason> for CloseFrame {
    fn from(reason: CloseReason) -> Self {
        CloseFrame {
            code: reason.code(),
            reason: reason.text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODES: [CloseCode; 9] = [
        CloseCode::Done,
        CloseCode::Stopping,
        CloseCode::InvalidMessage,
        CloseCode::Failed,
        CloseCode::BrowserRestarted,
        CloseCode::SessionEnded,
        CloseCode::TooSlow,
        CloseCode::TakenOver,
        CloseCode::NotResumable,
    ];

    #[test]
    fn every_code_is_documented_under_its_name() {
        for (document, text) in [
            (
                "docs/websockets.md",
                include_str!("../../docs/websockets.md"),
            ),
            (
                "the agent's API description",
                include_str!("../agent/routes/introduction.md"),
            ),
            (
                "control's API description",
                include_str!("../control/routes/introduction.md"),
            ),
        ] {
            for code in CODES {
                let number = code as u16;
                let row = match code.name() {
                    Some(name) => format!("| {number} | `{name}` |"),
                    None => format!("| {number} | "),
                };
                assert!(text.contains(&row), "{document} lacks {row}");
            }
        }
    }

    #[test]
    fn reason_begins_with_the_name_of_the_code() {
        let frame = CloseFrame::from(CloseReason::new(CloseCode::SessionEnded, "deleted"));
        assert_eq!(
            (frame.code, frame.reason.as_str()),
            (4004, "session_ended: deleted")
        );
        let frame = CloseFrame::from(CloseReason::new(CloseCode::Failed, "lost"));
        assert_eq!((frame.code, frame.reason.as_str()), (1011, "lost"));
    }

    #[test]
    fn long_reason_is_truncated_between_characters() {
        for code in CODES {
            let reason = CloseReason::new(code, "é".repeat(100));
            assert!((MAX_REASON - 1..=MAX_REASON).contains(&reason.text().len()));
        }
    }
}
