//! Messages from Chromium: replies, and one handler per event.

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    AUTO_ATTACH_HOLD_TIMEOUT, AutoAttach, FIRST_RELAY_ID, LAST_RELAY_ID, Phase, Relay, RelayAction,
    RelayCommand, Verdict, Violation,
    message::{DetachedFromTarget, navigated_main_frame, params},
    session::Visibility,
};
use crate::system::cdp::message::Head;

impl Relay {
    /// Handles a message from Chromium.
    pub(crate) fn from_browser(&mut self, text: Bytes, now: Instant) -> Result<(), Violation> {
        let original = text.clone();
        // Chromium is trusted: its message is forwarded even if the relay cannot read it.
        let head = Head::of_browser(&original).unwrap_or_default();
        let session = head.session.as_deref();
        let verdict = match head.id {
            Some(id) => self.on_reply(id, session, text, now),
            None => {
                let method = head.method.as_deref().unwrap_or_default();
                self.dispatch_event(method, session, text, now)?
            }
        };
        if let Verdict::Forward(text) = verdict {
            self.to_worker(text);
        }
        Ok(())
    }

    fn dispatch_event(
        &mut self,
        method: &str,
        session: Option<&str>,
        text: Bytes,
        now: Instant,
    ) -> Result<Verdict, Violation> {
        match (method, session) {
            ("Target.attachedToTarget", parent) => self.on_attached_to_target(parent, text, now),
            ("Target.detachedFromTarget", _) => Ok(self.on_detached_from_target(text)),
            ("Browser.downloadWillBegin", None) => self.on_download_will_begin(text),
            ("Browser.downloadProgress", None) => Ok(self.on_download_progress(text)),
            (_, None) => Ok(Verdict::Forward(text)),
            (_, Some(session)) => Ok(self.dispatch_session_event(method, session, text, now)),
        }
    }

    fn dispatch_session_event(
        &mut self,
        method: &str,
        session_id: &str,
        text: Bytes,
        now: Instant,
    ) -> Verdict {
        if self.is_hidden(session_id) {
            // Playwright knows nothing of a tab that was not announced. A first navigation makes
            // the tab usable.
            if method == "Page.frameNavigated" {
                self.probe(session_id, now);
            }
            return Verdict::Consumed;
        }
        let is_idle = self.is_idle();
        let drops_noise = self.phase == Phase::Warm || is_idle && self.is_worker_behind;
        if drops_noise && is_noise(method) {
            return Verdict::Consumed;
        }
        let Some(session) = self.sessions.get_mut(session_id) else {
            return Verdict::Forward(text);
        };
        match method {
            "Page.frameNavigated" => {
                if let Some(url) = navigated_main_frame(&text) {
                    session.url = url;
                }
                Verdict::Forward(text)
            }
            // Playwright closes a dialog that no script listens for. The event waits for a script.
            "Page.javascriptDialogOpening" if is_idle => {
                session.pending_dialog = Some(text);
                Verdict::Consumed
            }
            "Page.javascriptDialogClosed" if session.pending_dialog.take().is_some() => {
                Verdict::Consumed
            }
            "Runtime.executionContextCreated" => match session.worlds.context_created(text) {
                Some(text) => Verdict::Forward(text),
                None => Verdict::Consumed,
            },
            "Runtime.executionContextDestroyed" => {
                session.worlds.context_destroyed(&text);
                Verdict::Forward(text)
            }
            "Runtime.executionContextsCleared" => {
                session.worlds.contexts_cleared();
                Verdict::Forward(text)
            }
            _ => Verdict::Forward(text),
        }
    }

    fn is_hidden(&self, session_id: &str) -> bool {
        let session = self.sessions.get(session_id);
        session.is_some_and(|session| session.visibility == Visibility::Hidden)
    }

    fn on_reply(&mut self, id: i64, session: Option<&str>, text: Bytes, now: Instant) -> Verdict {
        if (FIRST_RELAY_ID..=LAST_RELAY_ID).contains(&id) {
            if let Some(RelayCommand::Probe(session)) = self.relay_commands.remove(&id) {
                self.on_probe_reply(&session, &text, now);
            }
            return Verdict::Consumed;
        }
        let pending = self.pending_commands.remove(&id);
        self.creating_targets.remove(&id);
        if pending.is_some_and(|command| command.creates_context) {
            self.on_context_created(&text);
        }
        let is_auto_attach =
            matches!(self.auto_attach, AutoAttach::Requested(requested) if requested == id);
        if session.is_none() && is_auto_attach {
            self.auto_attach = AutoAttach::Held {
                reply: text,
                until: now + AUTO_ATTACH_HOLD_TIMEOUT,
            };
            self.complete_auto_attach_if_probed();
            return Verdict::Consumed;
        }
        Verdict::Forward(text)
    }

    fn on_detached_from_target(&mut self, text: Bytes) -> Verdict {
        let visibility = match params::<DetachedFromTarget>(&text) {
            Some(event) => self.remove_session(&event.session_id),
            None => Visibility::Announced,
        };
        match visibility {
            Visibility::Hidden => Verdict::Consumed,
            Visibility::Announced => Verdict::Forward(text),
        }
    }

    /// Removes a session and returns whether the worker knew it.
    fn remove_session(&mut self, id: &str) -> Visibility {
        let Some(session) = self.sessions.remove(id) else {
            return Visibility::Announced;
        };
        self.relay_commands
            .retain(|_, command| !matches!(command, RelayCommand::Probe(probed) if probed == id));
        self.pending_commands
            .retain(|_, command| command.session.as_deref() != Some(id));
        if session.is_page() {
            self.actions.push(RelayAction::TabClosed(session.target));
            self.complete_auto_attach_if_probed();
        }
        session.visibility
    }
}

/// Whether the event only reports what a page does, without effect on Playwright's state.
fn is_noise(method: &str) -> bool {
    method.starts_with("Network.")
        || matches!(
            method,
            "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded"
        )
}
