//! A client's command: checked, and written anew for the pipe.
//!
//! The pipe is shared, so nothing of a client's text may reach Chromium that another parser could
//! read differently: the members are read by one strict parser and written again. What Chromium
//! would reject without naming the command is rejected here.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{carried::Effect, session::SessionId};
use crate::system::cdp::{
    cbor::{self, EncodeError, end_envelope, start_envelope},
    message::{Head, INVALID_REQUEST, PARSE_ERROR, SERVER_ERROR, error_reply},
    policy::{self, Caller},
};

/// The longest text of a command. Chromium reads no longer one in JSON from its pipe.
const MAX_TEXT: usize = (100 << 20) - 1024;
const TOO_LONG: &str = "the command is over 100 MiB";
/// The most bytes of parameters in CBOR, in which small objects are longer than in JSON.
const MAX_PARAMS: usize = 256 << 20;
/// The start of a message's members: an id, which is a 32-bit number.
const ID_MEMBER: &[u8] = b"\x62id\x1a";
/// The number of bytes before the members of a message.
const ENVELOPE_SIZE: usize = 8;
/// The size of a message without its method and its parameters.
const MEMBERS_SIZE: usize = 128;
/// The first and last id on the pipe. Chromium reads ids as signed 32-bit numbers.
pub(super) const FIRST_ID: u32 = 1_000_000_000;
pub(super) const LAST_ID: u32 = i32::MAX as u32;
/// The methods with a filter of targets.
const FILTERED: [&str; 4] = [
    "Target.autoAttachRelated",
    "Target.getTargets",
    "Target.setAutoAttach",
    "Target.setDiscoverTargets",
];

/// A command that is ready for the pipe, except for its id there.
#[derive(Debug)]
pub(super) struct Command {
    /// The id that the client gave it.
    pub(super) id: i32,
    /// The session that it is for, or `None` for the one that the client is connected to.
    pub(super) session: Option<SessionId>,
    pub(super) effect: Effect,
    /// The message for the pipe, without its end.
    message: Vec<u8>,
}

/// The members of a command. Chromium accepts no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, rename = "sessionId")]
    session: Option<&'a RawValue>,
}

impl Command {
    /// Reads a client's message.
    ///
    /// # Errors
    /// Returns the reply that rejects the message, also if the caller may not send it.
    pub(super) fn parse(text: &str, caller: Option<Caller>) -> Result<Self, Bytes> {
        let members = members(text)?;
        let id = integer(members.id).ok_or_else(|| {
            let message = "Message must have integer 'id' property";
            error_reply(None, INVALID_REQUEST, message)
        })?;
        let reject = |message: &str| rejection(id, None, INVALID_REQUEST, message);
        let method = string(members.method)
            .ok_or_else(|| reject("Message must have string 'method' property"))?;
        let session = session(members.session)
            .map_err(|()| reject("Message may have string 'sessionId' property"))?;
        let reject = |code, message: &str| rejection(id, session, code, message);
        if let Some(caller) = caller {
            policy::check_command(caller, &method, text.as_bytes())
                .map_err(|error| reject(policy::REFUSED_CODE, &error.to_string()))?;
        }
        let params = members.params.map_or("", RawValue::get);
        let effect = Effect::of(&method, params, caller);
        let params = without_browser_ui(&method, params);
        if method.len() + params.len() > MAX_TEXT {
            return Err(reject(SERVER_ERROR, TOO_LONG));
        }
        let mut message = Vec::with_capacity(method.len() + params.len() + MEMBERS_SIZE);
        start_message(&method, &params, session, &mut message)
            .map_err(|error| reject(INVALID_REQUEST, &error.to_string()))?;
        Ok(Command {
            id,
            session,
            effect,
            message,
        })
    }

    /// Appends the command for the pipe, with its id and its session there. That is `connection` if
    /// it names none.
    pub(super) fn write(&self, id: u32, connection: SessionId, pipe: &mut Vec<u8>) {
        let start = pipe.len();
        pipe.extend_from_slice(&self.message);
        if self.session.is_none() {
            session_member(connection, pipe);
        }
        end_message(id, start, pipe);
    }

    pub(super) fn len(&self) -> usize {
        self.message.len()
    }
}

/// Appends a command of the agent to the browser, with valid parameters.
pub(super) fn write_own(id: u32, method: &str, params: &Value, pipe: &mut Vec<u8>) {
    let start = pipe.len();
    let started = start_message(method, &params.to_string(), None, pipe);
    debug_assert_eq!(started, Ok(()));
    end_message(id, start, pipe);
}

/// Appends a message without its id and its end.
fn start_message(
    method: &str,
    params: &str,
    session: Option<SessionId>,
    message: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    start_envelope(message);
    message.extend_from_slice(ID_MEMBER);
    message.extend_from_slice(&[0; 4]);
    cbor::text("method", message);
    cbor::text(method, message);
    if !params.is_empty() {
        cbor::text("params", message);
        cbor::value_from_json(params, MAX_PARAMS, message)?;
    }
    if let Some(session) = session {
        session_member(session, message);
    }
    Ok(())
}

fn session_member(session: SessionId, message: &mut Vec<u8>) {
    message.extend_from_slice(b"\x69sessionId\x78\x20");
    message.extend_from_slice(&session.digits());
}

/// Completes the message that begins at `start`.
fn end_message(id: u32, start: usize, pipe: &mut Vec<u8>) {
    let id_at = start + ENVELOPE_SIZE + ID_MEMBER.len();
    pipe[id_at..id_at + 4].copy_from_slice(&id.to_be_bytes());
    end_envelope(pipe, start);
}

/// Returns the members of a message that is a JSON object.
fn members(text: &str) -> Result<Members<'_>, Bytes> {
    // An array would be read as the members in their order.
    if !text.trim_ascii_start().starts_with('{') {
        return Err(error_reply(None, PARSE_ERROR, "Message must be an object"));
    }
    serde_json::from_str(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            let message = "Message has property other than 'id', 'method', 'sessionId', 'params', \
                           or one of them twice";
            let id = Head::parse(text.as_bytes()).and_then(|head| head.id);
            error_reply(id, INVALID_REQUEST, message)
        }
        _ => error_reply(None, PARSE_ERROR, &format!("JSON: {error}")),
    })
}

/// Returns the reply that rejects a command, from the session that it is for.
pub(super) fn rejection(id: i32, session: Option<SessionId>, code: i32, message: &str) -> Bytes {
    let reply = error_reply(Some(id.into()), code, message);
    match session {
        Some(session) => with_session(&reply, session),
        None => reply,
    }
}

/// Returns the reply to a command that has no result.
pub(super) fn success(id: i32, session: Option<SessionId>) -> Bytes {
    let reply = format!(r#"{{"id":{id},"result":{{}}}}"#);
    match session {
        Some(session) => with_session(reply.as_bytes(), session),
        None => reply.into(),
    }
}

/// Returns a reply without a session as one from the session.
pub(super) fn with_session(reply: &[u8], session: SessionId) -> Bytes {
    let open = reply.strip_suffix(b"}").unwrap_or(reply);
    [open, &session.member(), b"}"].concat().into()
}

/// Returns a string, which is borrowed unless it has escapes.
fn string(value: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let borrowed = parse_as::<&str>(value).map(Cow::Borrowed);
    borrowed.or_else(|| parse_as::<String>(value).map(Cow::Owned))
}

/// Returns an id. Like Chromium, accepts an integer in any notation.
fn integer(value: Option<&RawValue>) -> Option<i32> {
    let number = parse_as::<f64>(value)?;
    let is_id =
        number.fract() == 0.0 && number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX);
    is_id.then_some(number as i32)
}

/// Returns the session of a command, or `None` for the one that the client is connected to.
fn session(value: Option<&RawValue>) -> Result<Option<SessionId>, ()> {
    let Some(value) = value else {
        return Ok(None);
    };
    let text = string(Some(value)).ok_or(())?;
    if text.is_empty() {
        return Ok(None);
    }
    // No session has another kind of id.
    let id = SessionId::parse(text.as_bytes());
    Ok(Some(id.unwrap_or(SessionId::UNKNOWN)))
}

fn parse_as<'a, T: Deserialize<'a>>(value: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(value?.get()).ok()
}

/// Excludes Chromium's own windows from the targets that a command filters. They are no tabs of the
/// client.
fn without_browser_ui<'a>(method: &str, params: &'a str) -> Cow<'a, str> {
    const EXCLUDED: &str = r#"{"type":"browser_ui","exclude":true}"#;
    const DEFAULT: &str = r#"{"type":"browser","exclude":true},{"type":"tab","exclude":true},{}"#;
    if !FILTERED.contains(&method) {
        return Cow::Borrowed(params);
    }
    // The values are not written anew, which could make them longer.
    let parsed = match params {
        "" => Some(BTreeMap::new()),
        params => serde_json::from_str::<BTreeMap<Cow<str>, &RawValue>>(params).ok(),
    };
    let Some(mut members) = parsed else {
        return Cow::Borrowed(params);
    };
    // Chromium allows no filter in a command that switches off.
    let is_off = |name| {
        members
            .get(name)
            .is_some_and(|value| value.get() == "false")
    };
    if is_off("autoAttach") || is_off("discover") {
        return Cow::Borrowed(params);
    }
    let entries = match members.remove("filter").map_or("null", RawValue::get) {
        "null" => DEFAULT,
        given => match given
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(entries) => entries.trim(),
            None => return Cow::Borrowed(params),
        },
    };
    let comma = if entries.is_empty() { "" } else { "," };
    let mut text = format!(r#"{{"filter":[{EXCLUDED}{comma}{entries}]"#);
    for (name, value) in members {
        text.push(',');
        text.push_str(&Value::from(name).to_string());
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    Cow::Owned(text)
}
