//! A client's command: checked, and written anew for the pipe.
//!
//! The pipe is shared, so nothing of a client's text may reach Chromium that another parser could
//! read differently: the members are read by one strict parser and written again. What Chromium
//! would reject without naming the command is rejected here.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::session::SessionId;
use crate::system::cdp::{
    message::{Head, INVALID_REQUEST, PARSE_ERROR, SERVER_ERROR, error_reply},
    pipe::TERMINATOR,
    policy::{self, Caller},
};

/// The deepest nesting of parameters that Chromium's parser accepts.
const MAX_DEPTH: usize = 300;
/// The longest text of a command. Chromium stops reading the pipe for good at a message of more
/// than 100 MiB.
const MAX_TEXT: usize = (100 << 20) - 1024;
const TOO_LONG: &str = "the command is over 100 MiB";
/// The position and length of the id in [`Command::text`]. Every id on the pipe has ten digits.
const ID_START: usize = r#"{"id":"#.len();
const ID_LENGTH: usize = 10;
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
    text: Vec<u8>,
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
        check_values(params).map_err(|message| reject(INVALID_REQUEST, message))?;
        let params = without_browser_ui(&method, params);
        let text = text_for_pipe(&method, &params, session);
        if text.len() > MAX_TEXT {
            return Err(reject(SERVER_ERROR, TOO_LONG));
        }
        Ok(Command { id, session, text })
    }

    /// Appends the command for the pipe, with its id and its session there.
    pub(super) fn write(&self, id: u32, root: SessionId, pipe: &mut Vec<u8>) {
        let start = pipe.len() + ID_START;
        pipe.extend_from_slice(&self.text);
        let mut rest = id;
        for digit in pipe[start..start + ID_LENGTH].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        if self.session.is_none() {
            pipe.extend_from_slice(&root.member());
        }
        pipe.extend_from_slice(&[b'}', TERMINATOR]);
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }
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

/// Checks what Chromium's parser rejects in valid JSON: deep nesting, and numbers that are not
/// finite.
fn check_values(json: &str) -> Result<(), &'static str> {
    let bytes = json.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at + 1),
            b'{' | b'[' if depth == MAX_DEPTH => return Err("JSON: params nest too deep"),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'-' | b'0'..=b'9' => {
                let end = at + bytes[at..].iter().take_while(|b| is_of_number(**b)).count();
                let number: Option<f64> = json[at..end].parse().ok();
                if !number.is_some_and(f64::is_finite) {
                    return Err("JSON: invalid number");
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Returns the position of the quote that ends the string.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(offset) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += offset;
        if bytes[at] == b'"' {
            break;
        }
        at += 2;
    }
    at
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

/// Returns the text without its end, with room for an id.
fn text_for_pipe(method: &str, params: &str, session: Option<SessionId>) -> Vec<u8> {
    let mut text = Vec::with_capacity(method.len() + params.len() + 128);
    text.extend_from_slice(br#"{"id":0000000000,"method":"#);
    if method
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
    {
        text.push(b'"');
        text.extend_from_slice(method.as_bytes());
        text.push(b'"');
    } else {
        text.extend_from_slice(Value::from(method).to_string().as_bytes());
    }
    if !params.is_empty() {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params.as_bytes());
    }
    if let Some(session) = session {
        text.extend_from_slice(&session.member());
    }
    text
}
