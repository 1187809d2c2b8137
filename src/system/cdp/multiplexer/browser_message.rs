//! A message of Chromium: its head, and its JSON text for a client.

use std::io::{self, Write};

use super::session::SessionId;
use crate::system::cdp::cbor::{Invalid, JsonWriter, Reader, Text};

/// A message of Chromium, of which only the head is read.
#[derive(Debug)]
pub(super) struct BrowserMessage<'a> {
    pub(super) head: BrowserHead<'a>,
    /// The session that it comes from.
    pub(super) session: Option<SessionId>,
    members: Reader<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BrowserHead<'a> {
    Reply(i32),
    /// An event with the name of its method.
    Event(&'a str),
    /// The rejection of a message whose id Chromium could not read.
    Rejection,
}

impl<'a> BrowserMessage<'a> {
    /// Reads the contents of a message's envelope.
    ///
    /// # Errors
    /// Fails if they are no object, or a member of the head is of another type.
    pub(super) fn parse(contents: &'a [u8]) -> Result<Self, Invalid> {
        let members = Reader::of_object(contents)?;
        let mut head = BrowserHead::Rejection;
        let mut session = None;
        let mut rest = members;
        while let Some(name) = rest.name()? {
            match name {
                Text::Utf8(b"id") => head = BrowserHead::Reply(rest.integer()?),
                Text::Utf8(b"method") => head = BrowserHead::Event(utf8(rest.text()?)?),
                Text::Utf8(b"sessionId") => {
                    let text = utf8(rest.text()?)?;
                    // No session has another kind of id.
                    let id = SessionId::parse(text.as_bytes());
                    session = Some(id.unwrap_or(SessionId::UNKNOWN));
                }
                _ => rest.skip()?,
            }
        }
        Ok(BrowserMessage {
            head,
            session,
            members,
        })
    }

    /// Returns the `sessionId` in the object with this name.
    pub(super) fn session_in(&self, object: &str) -> Option<SessionId> {
        SessionId::parse(self.text_in(&[object], "sessionId")?.as_bytes())
    }

    /// Returns the string with this name in an object, each of which is in the one before.
    pub(super) fn text_in(&self, objects: &[&str], name: &str) -> Option<&'a str> {
        let mut members = self.members;
        for object in objects {
            members = members.object(object.as_bytes()).ok()??;
        }
        while let Some(other) = members.name().ok()? {
            if other == Text::Utf8(name.as_bytes()) {
                return utf8(members.text().ok()?).ok();
            }
            members.skip().ok()?;
        }
        None
    }

    /// Appends the message in JSON with this head and session. They are its first and last member,
    /// as in Chromium's own JSON.
    ///
    /// # Errors
    /// Fails if a value is invalid, and with `io::ErrorKind::FileTooLarge` if the text has more
    /// than `max_length` bytes.
    pub(super) fn write_json(
        &self,
        head: BrowserHead,
        session: Option<SessionId>,
        text: &mut Vec<u8>,
        max_length: usize,
    ) -> io::Result<()> {
        let mut json = JsonWriter { text, max_length };
        let mut separator = ",";
        match head {
            BrowserHead::Reply(id) => write!(json, r#"{{"id":{id}"#)?,
            BrowserHead::Event(method) => {
                json.write_all(br#"{"method":"#)?;
                json.string(&Text::Utf8(method.as_bytes()))?;
            }
            BrowserHead::Rejection => separator = "{",
        }
        let mut rest = self.members;
        while let Some(name) = rest.name()? {
            if let Text::Utf8(b"id" | b"method" | b"sessionId") = name {
                rest.skip()?;
                continue;
            }
            json.write_all(separator.as_bytes())?;
            separator = ",";
            json.string(&name)?;
            json.write_all(b":")?;
            json.value(&mut rest)?;
        }
        if let Some(session) = session {
            json.write_all(&session.member())?;
        }
        json.write_all(b"}")
    }
}

fn utf8(text: Text<'_>) -> Result<&str, Invalid> {
    match text {
        Text::Utf8(bytes) => std::str::from_utf8(bytes).map_err(|_| Invalid),
        Text::Utf16(_) => Err(Invalid),
    }
}
