//! Asks Chromium which tab is in front.

use std::{net::SocketAddr, time::Duration};

use tokio::time::timeout;

use crate::system::cdp::devtools::DevtoolsHttp;

/// The timeout of the request. The browser process answers within a millisecond.
const TAB_LIST_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the target ids of all tabs, the most recently active first, or `None` if Chromium does
/// not answer.
pub(super) async fn activity_order(http: &DevtoolsHttp, addr: SocketAddr) -> Option<Vec<String>> {
    let tabs = timeout(TAB_LIST_TIMEOUT, http.tabs(addr))
        .await
        .ok()?
        .ok()?;
    Some(tabs.into_iter().map(|tab| tab.id).collect())
}
