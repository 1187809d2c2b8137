//! The commands that the worker of an executor may send while no call runs.
//!
//! Code of an earlier call can still run then, in timers and event handlers. It may not act in
//! pages: only the methods of [`Caller::IdleExecutor`] are forwarded.

use serde::Deserialize;

use super::{Phase, Relay, message::params};
use crate::system::cdp::policy::{self, Caller};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddedScript {
    world_name: Option<String>,
    run_immediately: Option<bool>,
}

impl Relay {
    /// Whether the worker may send the command in the present phase.
    pub(super) fn may_send_now(&self, method: &str, session: Option<&str>, text: &[u8]) -> bool {
        if self.phase != Phase::Between {
            return true;
        }
        if method == "Page.addScriptToEvaluateOnNewDocument" {
            return session.is_some_and(|session| self.sets_up_tab(session, text));
        }
        policy::is_allowed(Caller::IdleExecutor, method)
    }

    /// Whether the command gives a tab, opened since the last call, the scripts that Playwright
    /// adds to each new tab. Scripts added by code of the call do not run immediately.
    fn sets_up_tab(&self, session: &str, text: &[u8]) -> bool {
        let is_new = |id| {
            let session = self.sessions.get(id);
            session.is_some_and(|session| session.sequence > self.sessions_at_rest)
        };
        let is_of_setup = |script: AddedScript| {
            script.world_name.is_some() || script.run_immediately == Some(true)
        };
        is_new(session) && params(text).is_some_and(is_of_setup)
    }
}
