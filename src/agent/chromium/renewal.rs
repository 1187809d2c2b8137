//! New processes for the pages of a browser that was not used.
//!
//! A process that runs pages has the state of its random numbers, which is the same on all machines
//! that are resumed from a snapshot.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Chromium, Devtools, NotReady};
use crate::system::cdp::connection::CdpError;

/// The longest wait for a browser.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time in which the processes are replaced.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the processes are listed while those of closed tabs end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most polls before another tab is opened: Chromium may have had a process ready for the one
/// before.
const POLLS_PER_TAB: usize = 25;

/// Why the processes of pages were not replaced.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("Chromium does not replace its tabs: {0}")]
    Cdp(#[from] CdpError),
    #[error("processes of earlier pages still run after {} s", TIMEOUT.as_secs())]
    Remaining,
}

impl Chromium {
    /// Replaces the tabs by one with the address of the first, so that no process which runs pages,
    /// or is ready to, is older than this call.
    pub(in crate::agent) async fn renew_pages(&self) -> Result<(), RenewalError> {
        let devtools = self.ready(READY_TIMEOUT).await?;
        let before = devtools.cdp.renderer_processes().await?;
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            devtools.replace_tabs().await?;
            if devtools.have_ended(&before).await? {
                return Ok(());
            }
        }
        Err(RenewalError::Remaining)
    }
}

impl Devtools {
    async fn replace_tabs(&self) -> Result<(), CdpError> {
        let earlier = self.cdp.tabs().await?;
        let url = earlier.first().map_or("about:blank", |tab| &tab.url);
        self.cdp.open_tab(url).await?;
        for tab in &earlier {
            self.cdp.close_tab(tab).await?;
        }
        Ok(())
    }

    /// Waits a moment until none of the processes runs. Returns whether that is so.
    async fn have_ended(&self, processes: &BTreeSet<i64>) -> Result<bool, CdpError> {
        for _ in 0..POLLS_PER_TAB {
            if self.cdp.renderer_processes().await?.is_disjoint(processes) {
                return Ok(true);
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(false)
    }
}
