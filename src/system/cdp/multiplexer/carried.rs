//! Sessions that are not flat: a client sends a command to such a session in
//! `Target.sendMessageToTarget`, and receives its messages in `Target.receivedMessageFromTarget`.
//!
//! Sessions of `Target.attachToTarget` and `Target.setAutoAttach` are not flat by default, which is
//! deprecated. Chromium supports it in JSON only, so the router does it.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::{
    command::{Command, with_session},
    session::SessionId,
};
use crate::system::cdp::policy::Caller;

/// The effect of a command on sessions that are not flat.
#[derive(Debug)]
pub(super) enum Effect {
    None,
    /// The session in the reply is flat or not.
    Attach {
        is_flat: bool,
    },
    /// The sessions that Chromium attaches below the command's own are flat or not.
    AutoAttach {
        is_flat: bool,
    },
    /// The command is for another session.
    Carry(Carried),
}

/// A command in another one.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) recipient: Recipient,
    /// The command, or the reply that rejects it.
    pub(super) command: Box<Result<Command, Bytes>>,
}

#[derive(Debug)]
pub(super) enum Recipient {
    Session(SessionId),
    Target(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    flatten: Option<bool>,
    message: Option<String>,
    session_id: Option<String>,
    target_id: Option<String>,
}

impl Effect {
    /// Returns the effect of a command. Chromium rejects one with other parameters.
    pub(super) fn of(method: &str, params: &str, caller: Option<Caller>) -> Self {
        let is_attach = method == "Target.attachToTarget";
        let is_auto_attach = method == "Target.setAutoAttach";
        if method == "Target.autoAttachRelated" {
            return Effect::AutoAttach { is_flat: true };
        }
        if !is_attach && !is_auto_attach && method != "Target.sendMessageToTarget" {
            return Effect::None;
        }
        let Ok(params) = serde_json::from_str::<Params>(params) else {
            return Effect::None;
        };
        let is_flat = params.flatten.unwrap_or(false);
        if is_attach {
            return Effect::Attach { is_flat };
        }
        if is_auto_attach {
            return Effect::AutoAttach { is_flat };
        }
        let session = params.session_id.map(|id| {
            let id = SessionId::parse(id.as_bytes()).unwrap_or(SessionId::UNKNOWN);
            Recipient::Session(id)
        });
        let recipient = session.or(params.target_id.map(Recipient::Target));
        match (recipient, params.message) {
            (Some(recipient), Some(message)) => Effect::Carry(Carried {
                recipient,
                command: Box::new(Command::parse(&message, caller)),
            }),
            _ => Effect::None,
        }
    }
}

/// Returns the event with a message of a session that is not flat. `parent` is the session that the
/// event names, if any.
pub(super) fn received_message(
    message: &[u8],
    session: SessionId,
    target: &str,
    parent: Option<SessionId>,
) -> Bytes {
    let event = json!({
        "method": "Target.receivedMessageFromTarget",
        "params": {
            "sessionId": session.to_string(),
            "message": String::from_utf8_lossy(message),
            "targetId": target,
        },
    });
    let event = event.to_string();
    match parent {
        Some(parent) => with_session(event.as_bytes(), parent),
        None => event.into(),
    }
}
