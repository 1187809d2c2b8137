//! Phases of a worker, timers, and waiting for the commands of a dead worker.

use std::collections::HashSet;

use tokio::time::Instant;

use super::{
    AutoAttach, HUNG_TAB_TIMEOUT, PendingCommand, Phase, Relay, RelayAction, RelayCommand,
    session::{Session, Visibility},
};
use crate::system::cdp::message::Head;

impl Relay {
    /// Returns the latest time for the next [`Relay::tick`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let held = match &self.auto_attach {
            AutoAttach::Held { until, .. } => Some(*until),
            _ => None,
        };
        let sessions = self.sessions.values().flat_map(|session| {
            let hung_at = session.probed_at.filter(|_| !session.is_hung);
            let hung_at = hung_at.map(|probed_at| probed_at + HUNG_TAB_TIMEOUT);
            [session.release_at, hung_at].into_iter().flatten()
        });
        sessions.chain(held).min()
    }

    /// Acts on the deadlines that have passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        for session in self.session_ids(|session| session.release_at.is_some_and(|at| at <= now)) {
            self.release(&session);
        }
        for session in self.sessions.values_mut() {
            let probed_at = session.probed_at;
            if !session.is_hung && probed_at.is_some_and(|at| at + HUNG_TAB_TIMEOUT <= now) {
                session.is_hung = true;
                let action = RelayAction::TabHung(session.target.clone());
                self.actions.push(action);
            }
        }
        if matches!(&self.auto_attach, AutoAttach::Held { until, .. } if *until <= now) {
            self.complete_auto_attach();
        }
    }

    /// Prepares for a script: sends the deferred commands, and probes all tabs.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.phase = Phase::Settling { since: now };
        self.start_waiting();
        for id in self.session_ids(|_| true) {
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.is_driven = false;
            let deferred = std::mem::take(&mut session.deferred_commands);
            // An open dialog keeps the tab from answering until Playwright closes it.
            if let Some(dialog) = session.pending_dialog.take() {
                self.to_worker(dialog);
            }
            for command in deferred {
                self.send_deferred(&command);
            }
            self.create_missing_worlds(&id);
            self.probe(&id, now);
        }
    }

    /// Marks the script as running.
    pub(crate) fn run(&mut self) {
        self.phase = Phase::Running;
    }

    /// Marks the script of an executor as finished. The next one may follow.
    pub(crate) fn rest(&mut self) {
        self.phase = Phase::Between;
        self.stop_waiting();
        self.sessions_at_rest = self.attached_sessions;
        self.downloads.clear();
        for session in self.session_ids(|session| session.release_at.is_some()) {
            self.release(&session);
        }
    }

    fn session_ids(&self, matches: impl Fn(&Session) -> bool) -> Vec<String> {
        let matching = self.sessions.iter().filter(|(_, session)| matches(session));
        matching.map(|(id, _)| id.clone()).collect()
    }

    /// Probes each tab that still has commands of the dead worker: Chromium executes commands in
    /// order, so a reply means that they are done. Returns whether there is anything to wait for.
    pub(crate) fn quiesce(&mut self, now: Instant) -> bool {
        let is_announced = |session: &Session| session.visibility == Visibility::Announced;
        for session in self.busy_sessions(|_| true, is_announced) {
            self.probe(&session, now);
        }
        !self.is_quiet()
    }

    /// Whether the browser has created the dead worker's last tabs, and its tabs have answered the
    /// probes of [`Relay::quiesce`].
    pub(crate) fn is_quiet(&self) -> bool {
        let is_probing = |session: &Session| {
            session.visibility == Visibility::Announced && session.probed_at.is_some()
        };
        self.creating_targets.is_empty() && self.busy_sessions(|_| true, is_probing).is_empty()
    }

    /// Stops the code that the dead worker's script left running in tabs that do not answer.
    pub(crate) fn terminate(&mut self) {
        let is_probing = |session: &Session| session.probed_at.is_some();
        for session in self.busy_sessions(|command| command.runs_code, is_probing) {
            self.send_command("Runtime.terminateExecution", &session, RelayCommand::Other);
        }
    }

    /// Returns the ids of the sessions with pending commands of the worker, filtered.
    fn busy_sessions(
        &self,
        command_matches: impl Fn(&PendingCommand) -> bool,
        session_matches: impl Fn(&Session) -> bool,
    ) -> HashSet<String> {
        let commands = self.pending_commands.values();
        commands
            .filter(|command| command_matches(command))
            .filter_map(|command| command.session.clone())
            .filter(|id| self.sessions.get(id).is_some_and(&session_matches))
            .collect()
    }

    /// Forgets a command that was not sent, so that no reply is expected.
    pub(crate) fn cancel_unsent(&mut self, text: &[u8]) {
        let Some(id) = Head::parse(text).and_then(|head| head.id) else {
            return;
        };
        self.pending_commands.remove(&id);
        self.creating_targets.remove(&id);
        if let Some(RelayCommand::Probe(session)) = self.relay_commands.remove(&id)
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.probed_at = None;
        }
    }
}
