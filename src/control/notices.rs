//! The changes of other control processes, as they report them.
//!
//! A report is a hint: it makes a change known sooner than polling does.

use super::{
    browsers::Browsers,
    hosts::Hosts,
    keys::ApiKeys,
    pools::Pools,
    projects::Projects,
    store::{FlowChanges, Hint, HintChannel, Notice},
};
use crate::shutdown::Shutdown;

/// The services to which the changes of other processes are passed on.
pub(super) struct Listeners {
    pub(super) keys: ApiKeys,
    pub(super) projects: Projects,
    pub(super) browsers: Browsers,
    pub(super) pools: Pools,
    pub(super) hosts: Hosts,
    pub(super) flows: FlowChanges,
    pub(super) shutdown: Shutdown,
}

impl Listeners {
    /// Passes on what other processes have changed, until shutdown.
    pub(super) async fn listen(self, hints: HintChannel) {
        let shutdown = self.shutdown.clone();
        hints.run(shutdown, |notice| self.on_notice(notice)).await;
    }

    fn on_notice(&self, notice: Notice) {
        match notice {
            Notice::Hint(Hint::Access) => self.forget_access(),
            Notice::Hint(Hint::Hosts) => self.hosts.notice_change(),
            Notice::Hint(Hint::Browser(id)) => {
                let browsers = self.browsers.clone();
                self.shutdown.spawn(async move {
                    if let Err(error) = browsers.check_ended(&id).await {
                        tracing::debug!(browser = %id, %error);
                    }
                });
            }
            Notice::Hint(Hint::Pool(id)) => self.pools.notice_change(&id),
            Notice::Hint(Hint::AuthFlow(id)) => self.flows.notify(&id),
            Notice::Missed => {
                self.flows.notify_all();
                self.forget_access();
                self.hosts.notice_change();
            }
        }
    }

    fn forget_access(&self) {
        self.keys.forget_cached();
        self.projects.forget_cached();
    }
}
