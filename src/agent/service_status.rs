//! The status of the agent for the service manager: its browser, its registration at control, and
//! whether it is to be started again.

use std::convert::Infallible;

use tokio::sync::watch;

use super::{chromium::BrowserState, registration::RegistrationState, sessions::Sessions};
use crate::{
    service_report::{ServiceReport, changed},
    shutdown::Shutdown,
};

/// Follows what the status consists of, and has it reported.
pub(super) struct ServiceStatus {
    pub(super) sessions: Sessions,
    /// `None` if the agent does not register itself.
    pub(super) registration: Option<watch::Receiver<RegistrationState>>,
}

impl ServiceStatus {
    /// Reports that the agent is ready, and its status until shutdown.
    pub(super) fn start(self, shutdown: &Shutdown) {
        ServiceReport::start(self.text(), |report| self.follow(report), shutdown);
    }

    async fn follow(mut self, report: ServiceReport) -> Infallible {
        let mut current = self.sessions.watch();
        let mut restarting = self.sessions.watch_restarting();
        loop {
            current.mark_unchanged();
            let mut browser = self.sessions.current().agent.chromium.watch();
            loop {
                report.set_status(self.text());
                tokio::select! {
                    _ = current.changed() => break,
                    // It has no further state once its session has ended.
                    Ok(()) = browser.changed() => {}
                    () = changed(self.registration.as_mut()) => {}
                    () = changed(Some(&mut restarting)) => {}
                }
            }
        }
    }

    fn text(&self) -> String {
        let browser = self.sessions.current().agent.chromium.current();
        let mut text = browser_text(&browser);
        if let Some(state) = &self.registration {
            text = format!("{text} {}", registration_text(&state.borrow()));
        }
        match self.sessions.is_restarting() {
            true => format!("To be replaced when nothing else is in use. {text}"),
            false => text,
        }
    }
}

fn browser_text(state: &BrowserState) -> String {
    match state {
        BrowserState::Starting => "The browser is starting.".to_owned(),
        BrowserState::Running(devtools) => {
            format!("The browser is running: {}.", devtools.version.product)
        }
        BrowserState::Restarting { reason } => format!("The browser is restarting: {reason}."),
        BrowserState::Stopped => "The browser is stopped.".to_owned(),
    }
}

fn registration_text(state: &RegistrationState) -> String {
    match state {
        RegistrationState::Template => {
            "Waiting until the machine is resumed from a snapshot.".to_owned()
        }
        RegistrationState::Pending => "Not registered at control yet.".to_owned(),
        RegistrationState::Registered(host) => format!("Registered at control as {host}."),
        RegistrationState::Failing(error) => {
            format!("Cannot register at control or report to it: {error}.")
        }
    }
}
