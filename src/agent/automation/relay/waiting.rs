//! Whether new tabs, frames and workers wait for this worker before they run.
//!
//! Playwright has them wait (`Target.setAutoAttach`), sets them up, and lets them run. Chromium
//! lets one run as soon as any of its clients does, so a worker without a script would let those of
//! other clients run before they are set up: nothing waits for it, and it lets nothing run at once.
//! Its own `Target.setAutoAttach` takes effect when its script starts.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    Relay, Verdict,
    command::{success_reply, with_params},
    message::params,
};

/// The longest command that is retained for the next script. Playwright's are much shorter.
const MAX_RETAINED: usize = 4096;

impl Relay {
    /// Retains a `Target.setAutoAttach` that has targets wait, and returns it as it is sent in the
    /// present phase.
    pub(super) fn retain_auto_attach(&mut self, session: Option<&str>, text: Bytes) -> Bytes {
        let is_short = text.len() <= MAX_RETAINED;
        let without_waiting = is_short.then(|| without_waiting(&text)).flatten();
        // A copy: the text is a part of the memory of what was read with it.
        let retained = without_waiting.is_some();
        let retained = retained.then(|| Bytes::copy_from_slice(&text));
        match session {
            None => self.auto_attach_command = retained,
            Some(id) => {
                if let Some(session) = self.sessions.get_mut(id) {
                    session.auto_attach_command = retained;
                }
            }
        }
        without_waiting.filter(|_| self.is_idle()).unwrap_or(text)
    }

    /// Has new targets wait for the worker, as it has requested.
    pub(super) fn start_waiting(&mut self) {
        for command in self.auto_attach_commands() {
            self.send_deferred(&command);
        }
    }

    /// Has no new targets wait for the worker.
    pub(super) fn stop_waiting(&mut self) {
        for command in self.auto_attach_commands() {
            if let Some(command) = without_waiting(&command) {
                self.send_deferred(&command);
            }
        }
    }

    /// Returns the commands, first that for the browser, as Playwright sends them.
    fn auto_attach_commands(&self) -> Vec<Bytes> {
        let of_browser = self.auto_attach_command.iter();
        let of_sessions = self.sessions.values();
        let of_sessions = of_sessions.filter_map(|session| session.auto_attach_command.as_ref());
        of_browser.chain(of_sessions).cloned().collect()
    }

    /// Handles that Playwright lets a target run.
    pub(super) fn on_run_if_waiting(&mut self, id: i64, session_id: &str, text: Bytes) -> Verdict {
        if self.is_idle() {
            // The relay releases it.
            self.to_worker(success_reply(id, session_id, json!({})));
            return Verdict::Consumed;
        }
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.release_at = None;
        }
        Verdict::Forward(text)
    }
}

/// Returns the command with `waitForDebuggerOnStart: false`, if it is not already so.
fn without_waiting(text: &Bytes) -> Option<Bytes> {
    let mut changed = params::<Map<String, Value>>(text)?;
    let waits = changed.get_mut("waitForDebuggerOnStart")?;
    if *waits != true {
        return None;
    }
    *waits = false.into();
    with_params(text, &changed).ok()
}
