//! Asks Chromium which tab is in front.

use std::time::Duration;

use tokio::time::timeout;

use crate::agent::chromium::Devtools;

/// The timeout of the request. The browser process answers within a millisecond.
const TAB_LIST_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the target ids of all tabs, the most recently active first, or `None` if Chromium does
/// not answer.
pub(super) async fn activity_order(devtools: &Devtools) -> Option<Vec<String>> {
    let tabs = timeout(TAB_LIST_TIMEOUT, devtools.tabs())
        .await
        .ok()?
        .ok()?;
    Some(tabs.into_iter().map(|tab| tab.id).collect())
}
