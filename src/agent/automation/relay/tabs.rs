//! The sessions of the browser: attaching, probing, announcing, and choosing the script's page.

use std::cmp::Reverse;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    AutoAttach, DEBUGGER_RELEASE_TIMEOUT, HUNG_TAB_TIMEOUT, IDLE_RELEASE_DELAY, MAX_SESSIONS,
    PageChoice, Phase, Relay, RelayAction, RelayCommand, SETTLE_TIMEOUT, Verdict, Violation,
    message::{AttachedToTarget, main_frame_url, params},
    session::{Kind, Session, Visibility},
};

impl Relay {
    pub(super) fn pages(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().filter(|session| session.is_page())
    }

    /// Adds a session. Tabs that the script did not open run at once and are probed; the script's
    /// own tabs and workers are announced at once, because Playwright sets them up before they run.
    pub(super) fn on_attached_to_target(
        &mut self,
        parent: Option<&str>,
        text: Bytes,
        now: Instant,
    ) -> Result<Verdict, Violation> {
        let Some(event) = params::<AttachedToTarget>(&text) else {
            return Ok(Verdict::Forward(text));
        };
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(Violation::Sessions);
        }
        let is_page = parent.is_none() && event.target_info.kind == "page";
        let is_own = self.is_opened_by_script(parent, is_page, &event);
        // Playwright sets up a service worker in its session below the browser, and lets it run at
        // once in the one below a page, which may come first.
        let is_repeated = parent.is_some() && event.target_info.kind == "service_worker";
        self.attached_sessions += 1;
        let kind = if is_page { Kind::Page } else { Kind::Other };
        let target = event.target_info.target_id;
        let mut session = Session::new(target, kind, self.attached_sessions);
        session.is_driven = is_own;
        if !is_repeated && (is_own || !is_page) {
            session.visibility = Visibility::Announced;
            self.to_worker(text);
        } else if is_page {
            session.announcement = Some(text);
        }
        let is_idle = self.is_idle();
        if event.waiting_for_debugger && is_own {
            session.release_at = Some(now + DEBUGGER_RELEASE_TIMEOUT);
        } else if is_idle && matches!(self.auto_attach, AutoAttach::Done) {
            session.release_at = Some(now + IDLE_RELEASE_DELAY);
        }
        let id = event.session_id;
        self.sessions.insert(id.clone(), session);
        if event.waiting_for_debugger && !is_own && !is_idle && !is_repeated {
            self.release(&id);
        }
        if is_page && !is_own {
            self.probe(&id, now);
        }
        Ok(Verdict::Consumed)
    }

    fn is_opened_by_script(
        &self,
        parent: Option<&str>,
        is_page: bool,
        event: &AttachedToTarget,
    ) -> bool {
        self.phase == Phase::Running
            && match (parent, &event.target_info.opener_id) {
                (Some(parent), _) => self.any_driven(|id, _| id == parent),
                (None, Some(opener)) => self.any_driven(|_, session| session.target == *opener),
                // Service workers have no opener.
                (None, None) => !is_page || !self.creating_targets.is_empty(),
            }
    }

    /// Whether the running script has acted in a session that `matches`.
    fn any_driven(&self, matches: impl Fn(&str, &Session) -> bool) -> bool {
        self.sessions
            .iter()
            .any(|(id, session)| session.is_driven && matches(id, session))
    }

    /// Asks a tab whether it answers. One probe at a time: a hung tab would collect them.
    pub(super) fn probe(&mut self, id: &str, now: Instant) {
        match self.sessions.get_mut(id) {
            Some(session) if session.is_page() && session.probed_at.is_none() => {
                session.probed_at = Some(now);
            }
            _ => return,
        }
        let probe = RelayCommand::Probe(id.to_owned());
        self.send_command("Page.getFrameTree", id, probe);
    }

    pub(super) fn on_probe_reply(&mut self, id: &str, text: &[u8], now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.probed_at = None;
        session.is_hung = false;
        let action = RelayAction::TabAnswered(session.target.clone());
        self.actions.push(action);
        let Some(url) = main_frame_url(text) else {
            // An error: the session is about to end.
            self.complete_auto_attach_if_probed();
            return;
        };
        session.url = url;
        if session.visibility == Visibility::Hidden {
            if session.is_usable() {
                self.announce(id);
            } else if !session.page_enabled {
                // Playwright would wait for the tab's first navigation, which may never happen. The
                // relay waits instead, and probes again because it may have happened meanwhile.
                session.page_enabled = true;
                self.send_command("Page.enable", id, RelayCommand::Other);
                self.probe(id, now);
                return;
            }
        }
        self.complete_auto_attach_if_probed();
    }

    fn announce(&mut self, id: &str) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.visibility = Visibility::Announced;
            if let Some(text) = session.announcement.take() {
                self.to_worker(text);
            }
        }
    }

    /// Lets a session run that waits for the debugger.
    pub(super) fn release(&mut self, id: &str) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.release_at = None;
        }
        self.send_command("Runtime.runIfWaitingForDebugger", id, RelayCommand::Other);
    }

    /// Lets the worker attach once every tab has answered its first probe.
    pub(super) fn complete_auto_attach_if_probed(&mut self) {
        let is_probing =
            |page: &Session| page.visibility == Visibility::Hidden && page.probed_at.is_some();
        if matches!(self.auto_attach, AutoAttach::Held { .. }) && !self.pages().any(is_probing) {
            self.complete_auto_attach();
        }
    }

    pub(super) fn complete_auto_attach(&mut self) {
        let held = std::mem::replace(&mut self.auto_attach, AutoAttach::Done);
        if let AutoAttach::Held { reply, .. } = held {
            self.to_worker(reply);
        }
    }

    /// Chooses the tab in front. `order` is Chromium's order of activity (target ids), or `None` if
    /// it is unknown or there is one tab at most; `is_hung` is true for tabs known to hang. A tab
    /// that may still answer gets [`SETTLE_TIMEOUT`]; the one in front gets [`HUNG_TAB_TIMEOUT`].
    pub(crate) fn choose_page(
        &self,
        order: Option<&[String]>,
        is_hung: impl Fn(&str) -> bool,
        now: Instant,
    ) -> PageChoice {
        let since = match self.phase {
            Phase::Settling { since } => since,
            _ => now,
        };
        let may_answer = |session: &Session| {
            session.probed_at.is_some() && !session.is_hung && !is_hung(&session.target)
        };
        if now < since + SETTLE_TIMEOUT && self.pages().any(may_answer) {
            return PageChoice::Wait(since + SETTLE_TIMEOUT);
        }
        let mut pages: Vec<&Session> = self.pages().collect();
        // Chromium's order if it is known, otherwise the latest first.
        pages.sort_by_key(|page| {
            let rank = order.and_then(|order| order.iter().position(|id| *id == page.target));
            (rank.unwrap_or(usize::MAX), Reverse(page.sequence))
        });
        for page in pages {
            if page.probed_at.is_some() {
                if may_answer(page) && now < since + HUNG_TAB_TIMEOUT {
                    return PageChoice::Wait(since + HUNG_TAB_TIMEOUT);
                }
                continue;
            }
            if page.visibility == Visibility::Announced && page.is_usable() {
                return PageChoice::Tab(page.target.clone());
            }
        }
        PageChoice::Fresh
    }
}
