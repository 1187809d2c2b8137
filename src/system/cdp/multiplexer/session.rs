//! Sessions and their ids.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::router::ClientId;

/// The start of a message's last member if that is its session.
const MEMBER_START: &[u8] = br#","sessionId":""#;
const ID_LENGTH: usize = 32;
const MEMBER_LENGTH: usize = MEMBER_START.len() + ID_LENGTH + 1;

/// The id of a session: 32 hexadecimal digits in capitals.
#[derive(Clone, Copy, Hash, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct SessionId(u128);

impl SessionId {
    /// An id that no session has: Chromium's are random and not zero.
    pub(super) const UNKNOWN: SessionId = SessionId(0);

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
        if text.len() != ID_LENGTH || !text.iter().all(is_digit) {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        u128::from_str_radix(text, 16).ok().map(SessionId)
    }

    /// Returns the last member of a message for this session, in JSON.
    pub(super) fn member(self) -> [u8; MEMBER_LENGTH] {
        let mut member = [b'"'; MEMBER_LENGTH];
        member[..MEMBER_START.len()].copy_from_slice(MEMBER_START);
        member[MEMBER_START.len()..MEMBER_LENGTH - 1].copy_from_slice(&self.digits());
        member
    }

    pub(super) fn digits(self) -> [u8; ID_LENGTH] {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        std::array::from_fn(|index| {
            let shift = 4 * (ID_LENGTH - 1 - index);
            DIGITS[(self.0 >> shift) as usize & 0xf]
        })
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for SessionId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        SessionId::parse(text.as_bytes()).ok_or("no id of a session")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032X}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A session of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) client: ClientId,
    pub(super) parent: Option<SessionId>,
    pub(super) children: Vec<SessionId>,
    /// The target that the session is attached to.
    pub(super) target: String,
    /// Whether messages name the session. Otherwise those of its parent carry them.
    pub(super) is_flat: bool,
    /// Whether the sessions are flat that Chromium attaches below this one by itself.
    pub(super) auto_attaches_flat: bool,
}

impl Session {
    pub(super) fn new(
        client: ClientId,
        parent: Option<SessionId>,
        target: &str,
        is_flat: bool,
    ) -> Self {
        Session {
            client,
            parent,
            children: Vec::new(),
            target: target.to_owned(),
            is_flat,
            auto_attaches_flat: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_as_chromium_writes_them_are_read() {
        let text = "73926561DDD674C876160879A2BF86F7";
        let id = SessionId::parse(text.as_bytes()).unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(id.member(), format!(r#","sessionId":"{text}""#).as_bytes());
        let zeros = SessionId::UNKNOWN.to_string();
        assert_eq!(SessionId::parse(zeros.as_bytes()), Some(SessionId::UNKNOWN));
        for other in [
            "",
            "7",
            &text[1..],
            &text.to_lowercase(),
            &format!("+{}", &text[1..]),
        ] {
            assert_eq!(SessionId::parse(other.as_bytes()), None, "{other}");
        }
    }
}
