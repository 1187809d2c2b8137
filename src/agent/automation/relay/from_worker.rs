//! Messages from the worker: one handler per command of Playwright.

use bytes::Bytes;
use serde_json::json;

use super::{
    AutoAttach, FIRST_RELAY_ID, MAX_PENDING_COMMANDS, PendingCommand, Phase, Relay, RelayAction,
    Verdict, Violation,
    command::{NO_CALL, error_reply, success_reply},
};
use crate::system::cdp::message::Head;

impl Relay {
    /// Handles a message from Playwright.
    pub(crate) fn from_worker(&mut self, text: Bytes) -> Result<(), Violation> {
        let original = text.clone();
        let head = Head::parse(&original).ok_or(Violation::NotCdp)?;
        let (Some(id), Some(method)) = (head.id, head.method.as_deref()) else {
            return Err(Violation::NotCdp);
        };
        if !(0..FIRST_RELAY_ID).contains(&id) {
            return Err(Violation::ReservedId);
        }
        if self.pending_commands.contains_key(&id) {
            return Err(Violation::DuplicateId);
        }
        // Chromium takes an empty id for the root session.
        let session = head.session.as_deref().filter(|id| !id.is_empty());
        if !self.may_send_now(method, session, &text) {
            self.to_worker(error_reply(id, session, NO_CALL));
            return Ok(());
        }
        let text = match self.restrict(method, session, text) {
            Ok(text) => text,
            Err(refusal) => {
                self.to_worker(error_reply(id, session, &refusal.to_string()));
                return Ok(());
            }
        };
        let verdict = match session {
            None => self.dispatch_root_command(id, method, text),
            Some(session) => self.dispatch_session_command(id, method, session, text),
        };
        if let Verdict::Forward(text) = verdict {
            self.track_pending(id, method, session)?;
            self.to_browser(text);
        }
        Ok(())
    }

    fn dispatch_root_command(&mut self, id: i64, method: &str, text: Bytes) -> Verdict {
        match method {
            "Target.setAutoAttach" => self.on_browser_auto_attach(id, text),
            "Target.createTarget" => self.on_create_target(id, text),
            "Browser.setDownloadBehavior" => {
                Verdict::Forward(self.on_set_download_behavior(id, &text))
            }
            _ => Verdict::Forward(text),
        }
    }

    fn dispatch_session_command(
        &mut self,
        id: i64,
        method: &str,
        session: &str,
        text: Bytes,
    ) -> Verdict {
        match method {
            "Browser.setDownloadBehavior" => self.on_session_download_behavior(id, session, &text),
            "Page.setDownloadBehavior" => self.on_page_download_behavior(id, session),
            "Target.setAutoAttach" => {
                Verdict::Forward(self.retain_auto_attach(Some(session), text))
            }
            "Runtime.runIfWaitingForDebugger" => self.on_run_if_waiting(id, session, text),
            "Network.enable" | "Log.enable" => self.on_enable(id, session, text),
            "Page.addScriptToEvaluateOnNewDocument" => self.on_add_script(id, session, text),
            "Page.createIsolatedWorld" => self.on_create_isolated_world(id, session, text),
            method if acts_in_page(method) => self.on_page_action(session, text),
            _ => Verdict::Forward(text),
        }
    }

    fn track_pending(
        &mut self,
        id: i64,
        method: &str,
        session: Option<&str>,
    ) -> Result<(), Violation> {
        if self.pending_commands.len() >= MAX_PENDING_COMMANDS {
            return Err(Violation::PendingCommands);
        }
        let command = PendingCommand {
            session: session.map(str::to_owned),
            runs_code: runs_code(method),
            creates_context: method == "Target.createBrowserContext",
        };
        self.pending_commands.insert(id, command);
        Ok(())
    }

    /// Notes the first `Target.setAutoAttach`, whose reply is held.
    fn on_browser_auto_attach(&mut self, id: i64, text: Bytes) -> Verdict {
        if matches!(self.auto_attach, AutoAttach::NotRequested) {
            self.auto_attach = AutoAttach::Requested(id);
        }
        Verdict::Forward(self.retain_auto_attach(None, text))
    }

    fn on_create_target(&mut self, id: i64, text: Bytes) -> Verdict {
        self.creating_targets.insert(id);
        Verdict::Forward(text)
    }

    /// Defers `Network.enable` and `Log.enable` of a warm worker to its script: a page's traffic
    /// reported to every warm worker costs CPU, and memory in the page's process for each of them.
    fn on_enable(&mut self, id: i64, session_id: &str, text: Bytes) -> Verdict {
        match self.sessions.get_mut(session_id) {
            Some(session) if self.phase == Phase::Warm => {
                session.deferred_commands.push(text);
                self.to_worker(success_reply(id, session_id, json!({})));
                Verdict::Consumed
            }
            _ => Verdict::Forward(text),
        }
    }

    /// Moves a script of Playwright into the shared world. A warm worker creates no worlds in the
    /// pages of others, so its command is deferred.
    fn on_add_script(&mut self, id: i64, session_id: &str, text: Bytes) -> Verdict {
        let Some(text) = self.use_shared_world(session_id, &text) else {
            return Verdict::Forward(text);
        };
        match self.sessions.get_mut(session_id) {
            Some(session) if self.phase == Phase::Warm => {
                session.deferred_commands.push(text);
                let result = json!({ "identifier": "0" });
                self.to_worker(success_reply(id, session_id, result));
                Verdict::Consumed
            }
            _ => Verdict::Forward(text),
        }
    }

    /// Answers with the shared world where it exists. A warm worker's world is created at the start
    /// of its script; Playwright uses the event alone, so the id in this reply does not matter.
    fn on_create_isolated_world(&mut self, id: i64, session_id: &str, text: Bytes) -> Verdict {
        let Some(shared) = self.use_shared_world(session_id, &text) else {
            return Verdict::Forward(text);
        };
        let session = self.sessions.get(session_id);
        let existing = session.and_then(|session| session.worlds.shared_context(&text));
        if existing.is_none() && self.phase != Phase::Warm {
            return Verdict::Forward(shared);
        }
        let result = json!({ "executionContextId": existing.unwrap_or(0) });
        self.to_worker(success_reply(id, session_id, result));
        Verdict::Consumed
    }

    /// Returns the command with the shared world in place of Playwright's, and sends the worker the
    /// events that waited for its world's name. Returns `None` if the command names no such world.
    fn use_shared_world(&mut self, session_id: &str, text: &[u8]) -> Option<Bytes> {
        let session = self.sessions.get_mut(session_id)?;
        let (shared, events) = session.worlds.rewrite_command(text)?;
        self.actions
            .extend(events.into_iter().map(RelayAction::ToWorker));
        Some(shared)
    }

    /// Notes that the script acts in the session.
    fn on_page_action(&mut self, session_id: &str, text: Bytes) -> Verdict {
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.is_driven = true;
        }
        Verdict::Forward(text)
    }
}

fn runs_code(method: &str) -> bool {
    matches!(method, "Runtime.evaluate" | "Runtime.callFunctionOn")
}

/// Whether the command makes a script act in a page.
fn acts_in_page(method: &str) -> bool {
    runs_code(method)
        || method.starts_with("Input.")
        || matches!(
            method,
            "Page.navigate" | "Page.reload" | "Page.navigateToHistoryEntry"
        )
}
