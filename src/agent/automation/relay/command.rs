//! Building the relay's messages to Chromium and to Playwright.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::{FIRST_RELAY_ID, LAST_RELAY_ID, Relay, RelayCommand, worlds::SHARED_WORLD};
use crate::system::cdp::policy::REFUSED_CODE;

/// The error for a command that the worker may not send while no call runs.
pub(super) const NO_CALL: &str =
    "no call is running in this executor: code of earlier calls may not act in pages";

impl Relay {
    /// Sends a command without parameters to a session.
    pub(super) fn send_command(&mut self, method: &str, session: &str, command: RelayCommand) {
        let id = self.allocate_id(command);
        let text =
            format!(r#"{{"id":{id},"method":"{method}","params":{{}},"sessionId":"{session}"}}"#);
        self.to_browser(text.into());
    }

    /// Sends a command with parameters to the browser itself.
    pub(super) fn send_browser_command(&mut self, method: &str, params: Value) {
        let id = self.allocate_id(RelayCommand::Other);
        let command = json!({ "id": id, "method": method, "params": params });
        self.to_browser(command.to_string().into());
    }

    /// Sends `command` of the worker under an id of the relay, so that its reply is dropped.
    pub(super) fn send_deferred(&mut self, command: &[u8]) {
        let id = self.allocate_id(RelayCommand::Other);
        if let Some(text) = with_id(command, id) {
            self.to_browser(text);
        }
    }

    /// Creates the shared world in each frame of the session that lacks it.
    pub(super) fn create_missing_worlds(&mut self, session_id: &str) {
        let Some(session) = self.sessions.get(session_id) else {
            return;
        };
        for frame in session.worlds.frames_without_shared_world() {
            let id = self.allocate_id(RelayCommand::Other);
            let params = json!({
                // `Univeral` is the protocol's spelling.
                "frameId": frame, "worldName": SHARED_WORLD, "grantUniveralAccess": true,
            });
            let command = json!({
                "id": id,
                "method": "Page.createIsolatedWorld",
                "params": params,
                "sessionId": session_id,
            });
            self.to_browser(command.to_string().into());
        }
    }

    fn allocate_id(&mut self, command: RelayCommand) -> i64 {
        let id = self.next_relay_id;
        self.next_relay_id = if id == LAST_RELAY_ID {
            FIRST_RELAY_ID
        } else {
            id + 1
        };
        // Only the replies to probes are used.
        if let RelayCommand::Probe(_) = command {
            self.relay_commands.insert(id, command);
        }
        id
    }
}

/// Returns a successful reply to the worker's command.
pub(super) fn success_reply(id: i64, session: &str, result: Value) -> Bytes {
    json!({ "id": id, "result": result, "sessionId": session })
        .to_string()
        .into()
}

/// Returns a reply with an error to the worker's command.
pub(super) fn error_reply(id: i64, session: Option<&str>, message: &str) -> Bytes {
    let mut reply = json!({ "id": id, "error": { "code": REFUSED_CODE, "message": message } });
    if let Some(session) = session {
        reply["sessionId"] = session.into();
    }
    reply.to_string().into()
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Command<P> {
    id: i64,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

/// Returns the same command under another id.
fn with_id(text: &[u8], id: i64) -> Option<Bytes> {
    let mut command: Command<&RawValue> = serde_json::from_slice(text).ok()?;
    command.id = id;
    serde_json::to_vec(&command).ok().map(Bytes::from)
}

/// Returns the same command with other parameters.
pub(super) fn with_params(
    text: &[u8],
    params: &impl Serialize,
) -> Result<Bytes, serde_json::Error> {
    let params = to_raw_value(params)?;
    let mut command: Command<&RawValue> = serde_json::from_slice(text)?;
    command.params = Some(&params);
    serde_json::to_vec(&command).map(Bytes::from)
}
