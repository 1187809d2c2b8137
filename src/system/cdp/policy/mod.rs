//! The DevTools methods that each caller may call: one [table](table::TABLE).
//!
//! A method that is not in the table, as one of a later Chromium, is available to
//! [`Caller::Client`] and refused to all others. Parameters are not checked here, except for
//! `Target.sendMessageToTarget`, which carries another command.
//!
//! `docs/devtools.md` lists the table.

mod table;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::LazyLock};

use serde::{
    Deserialize,
    de::{Error, IgnoredAny},
};

/// The error code of a refused command. Chromium refuses commands with the same.
pub const REFUSED_CODE: i32 = -32000;

/// The method that carries a command to a session which has no id in messages.
const SEND_MESSAGE: &str = "Target.sendMessageToTarget";
/// The most commands that are carried one within the other. Clients carry one: a session that has
/// no id can attach to others of its kind.
const MAX_CARRIED_COMMANDS: usize = 4;
/// The most characters of a method in an error.
const MAX_SHOWN_METHOD: usize = 100;

/// The sender of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A WebSocket client of `/cdp` or `/devtools/…`.
    Client,
    /// A call of `automation/execute`.
    Script,
    /// The worker of an executor while no call runs. Code of an earlier call can still run then, in
    /// timers and event handlers.
    IdleExecutor,
    /// A client that may read, but not change anything.
    Viewer,
}

impl Caller {
    pub const ALL: [Caller; 4] = [
        Caller::Client,
        Caller::Script,
        Caller::IdleExecutor,
        Caller::Viewer,
    ];

    /// Whether the caller may call a method that is not in the table.
    fn may_call_unlisted(self) -> bool {
        self == Caller::Client
    }

    /// Returns the end of the sentence "… is not available".
    fn place(self) -> &'static str {
        match self {
            Caller::Client => "to clients",
            Caller::Script => "in a script",
            Caller::IdleExecutor => "between the calls of an executor",
            Caller::Viewer => "to a read-only viewer",
        }
    }
}

/// Why a command is refused. The caller gets the text as the command's error.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("{method} is not available {place}")]
    Method { method: String, place: &'static str },
    #[error("{SEND_MESSAGE}: not a DevTools command: {0}")]
    Carried(serde_json::Error),
    #[error("{SEND_MESSAGE}: limit of commands within each other reached ({MAX_CARRIED_COMMANDS})")]
    TooDeep,
}

impl PolicyError {
    fn method(caller: Caller, method: &str) -> Self {
        PolicyError::Method {
            method: method.chars().take(MAX_SHOWN_METHOD).collect(),
            place: caller.place(),
        }
    }
}

/// A domain and a name.
type Method = (&'static str, &'static str);

/// The callers of each method in the table.
static CALLERS: LazyLock<HashMap<Method, &[Caller]>> = LazyLock::new(|| {
    let methods = |&(domain, callers, names): &'static table::Row| {
        let names = names.split_ascii_whitespace();
        names.map(move |name| ((domain, name), callers))
    };
    table::TABLE.iter().flat_map(methods).collect()
});

/// Returns each method in the table, with its callers.
#[cfg(test)]
pub fn methods() -> impl Iterator<Item = (String, &'static [Caller])> {
    let name = |(&(domain, name), &callers): (&Method, _)| (format!("{domain}.{name}"), callers);
    CALLERS.iter().map(name)
}

/// Whether the caller may call the method.
pub fn is_allowed(caller: Caller, method: &str) -> bool {
    let callers = method
        .split_once('.')
        .and_then(|method| CALLERS.get(&method));
    callers.map_or(caller.may_call_unlisted(), |callers| {
        callers.contains(&caller)
    })
}

/// Rejects a command whose method the caller may not call, or which carries such a command.
///
/// `method` is that of `command`, a complete message. The message is parsed only if it carries
/// another one.
pub fn check_command(caller: Caller, method: &str, command: &[u8]) -> Result<(), PolicyError> {
    check_carried(caller, method, command, 0)
}

/// Checks a command that is carried by as many others as `depth`.
fn check_carried(
    caller: Caller,
    method: &str,
    command: &[u8],
    depth: usize,
) -> Result<(), PolicyError> {
    if !is_allowed(caller, method) {
        return Err(PolicyError::method(caller, method));
    }
    if method != SEND_MESSAGE {
        return Ok(());
    }
    if depth == MAX_CARRIED_COMMANDS {
        return Err(PolicyError::TooDeep);
    }
    let carrier: Command<SendMessage> = parse(command).map_err(PolicyError::Carried)?;
    let message = carrier.params.message.as_bytes();
    let carried: Command<Option<IgnoredAny>> = parse(message).map_err(PolicyError::Carried)?;
    check_carried(caller, &carried.method, message, depth + 1)
}

/// All members that a command can have. One that is repeated is an error: Chromium could use
/// another one of its values.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Command<P> {
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    method: String,
    params: P,
    #[serde(rename = "sessionId")]
    _session_id: Option<IgnoredAny>,
}

/// The parameters of [`SEND_MESSAGE`] that are checked.
#[derive(Deserialize)]
struct SendMessage {
    message: String,
}

fn parse<'a, P: Deserialize<'a>>(command: &'a [u8]) -> Result<Command<P>, serde_json::Error> {
    // An array would be read as the members in their order.
    if !command.trim_ascii_start().starts_with(b"{") {
        return Err(Error::custom("expected an object"));
    }
    serde_json::from_slice(command)
}
